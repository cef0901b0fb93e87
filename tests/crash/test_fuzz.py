"""Some thousand of the ten million inputs of `make fuzz`, all that it ever found, and bugs that it must find."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

CRASH = Path(__file__).parent
FUZZ, CORPUS = CRASH / "fuzz.py", CRASH / "corpus"
sys.path.insert(0, str(CRASH))

from readers import Readers  # noqa: E402

REASONS = tomllib.loads((CORPUS / "reasons.toml").read_text())
PLANTED = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
import fuzz, readers
from pathlib import Path
from ticklake.errors import BadFile
def stranger(data): raise KeyError("x")
def vague(data): raise BadFile(key="something", offset=0, reason="it is bad")
bugs = {
    "crash": lambda data: os.kill(os.getpid(), signal.SIGSEGV),
    "hang": lambda data: signal.pause(),
    "memory": lambda data: bytearray(8 << 30),
    "stranger": stranger,
    "vague": vague,
}
fuzz.HANG_SECONDS, fuzz.ENOUGH_CASES = 2, 1
fuzz.Inputs.kind = lambda self, number: "envelope"
for bug, readers.unwrap in bugs.items():
    print(bug, *fuzz.run(fuzz.Inputs(1), 1, 1, Path(sys.argv[2], bug)), sep=": ")
"""


def test_mutated_inputs_are_read_or_refused_with_an_error_that_says_where(tmp_path: Path) -> None:
    options = ["--inputs", "5000", "--seed", "11", "--processes", "1", "--found", str(tmp_path / "cases")]
    done = subprocess.run([sys.executable, FUZZ, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "inputs      5,000" in done.stdout
    assert not (tmp_path / "cases").exists()


@pytest.mark.parametrize("case", sorted(REASONS))
@pytest.mark.warns("torn")
def test_what_was_found_once_stays_mended(case: str, tmp_path: Path) -> None:
    kind = case.partition("/")[0]
    Readers(tmp_path).read(kind, (CORPUS / case).read_bytes())


def test_every_case_that_was_found_has_its_reason() -> None:
    kept = {str(path.relative_to(CORPUS)) for path in CORPUS.glob("*/*")}
    assert kept == REASONS.keys()


def test_a_reader_that_crashes_hangs_eats_memory_or_says_nothing_is_found(tmp_path: Path) -> None:
    """Planted in the reader of envelopes: the input is kept, and how its reader ended is told."""
    done = subprocess.run([sys.executable, "-c", PLANTED, CRASH, tmp_path], capture_output=True, text=True, check=True)
    ends = ["crash: killed by SIGSEGV", "hang: hung", "memory: failed", "stranger: failed", "vague: failed"]
    assert done.stdout.splitlines() == ends
    assert [why for why in ("MemoryError", "KeyError", "says not where") if why not in done.stderr] == []
    cases = sorted(tmp_path.glob("*/0.case"))
    assert [case.parent.name for case in cases] == ["crash", "hang", "memory", "stranger", "vague"]
    assert all(case.read_bytes().startswith(b"envelope\n") for case in cases)
