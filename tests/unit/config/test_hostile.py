"""Whatever is done to a good configuration, the answer is settings or one clear error."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ticklake.config import load
from ticklake.config.templates import STARTER
from ticklake.errors import TickLakeError

LINES = STARTER.read_text(encoding="utf-8").splitlines()
VALUES = [
    "",
    "null",
    "-1",
    "1e400",
    "5 parsecs",
    "[]",
    "{ }",
    '"',
    "${x}",
    "${?x}",
    "true",
    "+= 3",
    "\x00",
    '"""',
    "}",
    "{",
]

fuzz = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def mutated(rng: random.Random) -> str:
    lines = list(LINES)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(lines))
        key, mark, value = lines[at].partition("=")
        lines[at : at + 1] = rng.choice(
            [
                [],
                [lines[at], lines[at]],
                [f"{key}= {rng.choice(VALUES)}"],
                [lines[at][: rng.randrange(len(lines[at]) + 1)]],
                [f"{rng.choice(VALUES)} {mark}{value}"],
                [lines[at].swapcase()],
                list(rng.sample(lines, k=2)),
            ]
        )
    return "\n".join(lines)


def answer(file: Path) -> None:
    with contextlib.suppress(TickLakeError):
        assert load(file).file == file


@fuzz
@given(seed=st.integers(0, 2**32))
def test_changed_lines_give_settings_or_one_clear_error(seed: int, tmp_path: Path):
    file = tmp_path / "mutated.conf"
    file.write_text(mutated(random.Random(seed)), encoding="utf-8")
    answer(file)


@fuzz
@given(data=st.binary(max_size=200))
def test_any_bytes_give_settings_or_one_clear_error(data: bytes, tmp_path: Path):
    file = tmp_path / "bytes.conf"
    file.write_bytes(data)
    answer(file)
