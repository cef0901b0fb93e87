from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ticklake.storage.files import Storage

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_producer.py"


def test_the_example_of_an_own_producer_leaves_a_complete_run(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLE), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "3 batch files, last tick 249, complete" in done.stdout
    storage = Storage(tmp_path / "storage")
    (run_id,) = storage.runs()
    completion = storage.read_completion(run_id)
    assert completion is not None
    assert completion.last_tick == 249
