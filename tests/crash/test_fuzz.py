"""Some thousand mutated inputs of the ten million that `make fuzz` reads; and bugs that it must find."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FUZZ = Path(__file__).with_name("fuzz.py")


def run(*options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(FUZZ), *map(str, options)], capture_output=True, text=True, check=False)


def test_mutated_inputs_are_read_or_refused_with_an_error_of_ours(tmp_path: Path) -> None:
    done = run("--inputs", 2000, "--seed", 11, "--found", tmp_path / "cases")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (tmp_path / "cases").exists()


def test_a_reader_that_crashes_hangs_or_eats_memory_is_found(tmp_path: Path) -> None:
    """Bugs planted in the envelope's reader: the case is kept, and the run says that it is bad."""
    bugs = {
        "crash": "os.kill(os.getpid(), signal.SIGSEGV)",
        "hang": "while True: pass",
        "memory": "bytearray(8 << 30)",
        "stranger": "raise KeyError('x')",
    }
    for bug, code in bugs.items():
        script = (
            "import os, runpy, signal, sys\nsys.argv = sys.argv[1:]\nimport ticklake.topics.envelope as envelope\n"
            f"def unwrap(data):\n    {code}\nenvelope.unwrap = unwrap\n"
            "fuzz = runpy.run_path(sys.argv[0])\nfuzz['portion'].__globals__['HANG_SECONDS'] = 1\nfuzz['main']()\n"
        )
        found = tmp_path / bug
        command = [sys.executable, "-c", script, str(FUZZ), "--inputs", "1", "--seed", "11", "--found", str(found)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 1, bug
        (case,) = found.glob("*.case")
        assert case.read_bytes().startswith(b"envelope\n"), bug
