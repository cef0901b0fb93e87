"""Whatever is done to a good configuration, the answer is settings or one clear error."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ticklake.config import load
from ticklake.config import rendering as showing
from ticklake.config.templates import STARTER
from ticklake.errors import TickLakeError

GOOD = Path(__file__).parent / "good"
TEXTS = [file.read_text(encoding="utf-8") for file in sorted(GOOD.glob("*.conf"))]
SECRET = "hunter2-and-more"

fuzz = settings(
    max_examples=2 * settings().max_examples,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
few = settings(fuzz, max_examples=fuzz.max_examples // 4)

Edit = Callable[[str], str]

VALUES = st.sampled_from(
    [
        *("", "null", "-1", "0", "1e400", "9" * 40, "nan", "true", "a b # c", "org.x.Y", "a:b", "\x00", "+= 3"),
        *("5 parsecs", "3 m", "-5 s", "1 months", "[]", "[1, [2]]", "{ }", "{ a = 1 }", '"', '""', '"""', "}", "{"),
        *("${x}", "${?x}", "${FUZZ_VALUE}", "${vars}", "${services}", "${resources.lake}", 'include "x"'),
        *('"~nobody-at-all/x"', '"jdbc:h2:mem:x"', '"postgresql://[::1/db"', '"postgresql://a:b@h/d"'),
        *('"mysql://a:b@h/d"', '"topic-read:"', '"topic-read:lake?consumerGroup=g"', '"storage-read:%zz?"'),
    ]
)
ODD = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
SPELLINGS: list[Callable[[str], str]] = [str.swapcase, str.upper, lambda key: key[1:], lambda key: key * 2]


@st.composite
def edits(draw: st.DrawFn) -> Edit:
    """One thing that somebody could have done to a file, by mistake or not."""
    at = draw(st.integers(0, 40))
    kind = draw(st.integers(0, 9))
    value, odd = draw(VALUES), draw(ODD)
    depth, spelling = draw(st.sampled_from([1, 3, 30, 300])), draw(st.sampled_from(SPELLINGS))

    def change(text: str) -> str:
        lines = text.splitlines() or [""]
        line = lines[at % len(lines)]
        if kind == 8:
            return text[: at * 25]
        if kind == 9:
            return text[: at * 25] + odd + text[at * 25 :]
        changed: list[list[str]] = [
            [],
            [line, line],
            [re.sub(r"([=:{]\s*)\S.*", lambda found: found[1] + value, line, count=1)],
            [re.sub(r"\w[\w-]*", lambda found: spelling(found[0]), line, count=1)],
            [re.sub(r"\b\d+( ?[a-zA-Z]+)?", lambda found: found[0] + " " + (odd or "fortnights"), line, count=1)],
            [line + "{ a " * depth, "}" * depth],
            [line, "x = " + "[" * depth + "]" * depth],
            [f"{odd} = {value}", line],
        ]
        lines[at % len(lines) : at % len(lines) + 1] = changed[kind]
        return "\n".join(lines)

    return change


def answer(file: Path) -> None:
    """Settings that can be shown, or an error of one line that names the file; and never the secret."""
    try:
        found = load(file)
        shown = showing.show(found, origin=True)
        found.check_complete()
    except TickLakeError as error:
        shown = str(error)
        assert "\n" not in shown
        assert ".conf" in shown
    assert SECRET not in shown
    shown.encode()


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUZZ_PASSWORD", SECRET)
    monkeypatch.setenv("FUZZ_VALUE", "7 ü")
    (tmp_path / "places.conf").write_text((GOOD / "places.conf").read_text())


@pytest.mark.timeout(300 + fuzz.max_examples)
@fuzz
@given(text=st.sampled_from(TEXTS), changes=st.lists(edits(), min_size=1, max_size=3))
def test_a_changed_configuration_gives_settings_or_one_clear_error(text: str, changes: list[Edit], tmp_path: Path):
    for change in changes:
        text = change(text)
    file = tmp_path / "changed.conf"
    file.write_text(text, encoding="utf-8", newline="")
    answer(file)


FOUND = [
    'resources { s { class = Storage, path = "~nobody-at-all/x" } }',
    'resources { d { class = Database, url = "postgresql://[::1/db" } }',
    'resources { s { class = Storage, path = "a\x00b" } }',
    'services { dummy-indexer { options = "" } }',
    "services { runId = null, dummy-indexer { } }",
    "services { runId = [1], dummy-indexer { } }",
    "resources { l { class = Lake, path = x, spark { a { b = 1 } } } }",
    "vars = ${FUZZ_PASSWORD}, vars { a = 1 }",
    "vars { a = [1], a = ${FUZZ_PASSWORD}[2] }",
    "resources { d = ${FUZZ_PASSWORD} }",
    'resources { d { class = Database, url = ${FUZZ_PASSWORD}"://x" } }',
    'resources { d { class = Database, url = "jdbc:h2:${user.hom}/x" } }',
]


@pytest.mark.parametrize("text", FOUND)
def test_what_fuzzing_once_found_stays_mended(text: str, tmp_path: Path):
    file = tmp_path / "found.conf"
    file.write_text(text, encoding="utf-8")
    answer(file)


@few
@given(data=st.binary(max_size=200))
@example(data=b'include "places.conf"\n' * 3)
@example(data=b"\xef\xbb\xbfservices { }\r\n")
def test_any_bytes_give_settings_or_one_clear_error(data: bytes, tmp_path: Path):
    file = tmp_path / "bytes.conf"
    file.write_bytes(data)
    answer(file)


@settings(few, max_examples=10)
@given(cut=st.integers(0, len(STARTER.read_text(encoding="utf-8"))))
def test_a_file_that_was_cut_off_gives_settings_or_one_clear_error(cut: int, tmp_path: Path):
    file = tmp_path / "cut.conf"
    file.write_text(STARTER.read_text(encoding="utf-8")[:cut], encoding="utf-8")
    answer(file)
