"""Power cuts on a whole pipeline's disk, as many as a normal run has time for, and the harness itself."""

from __future__ import annotations

import filecmp
import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import disk
import powercut
import pytest
from disk import Cut, Sync
from powercut_child import RUN_ID
from recording import why_not

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "-"),
]
SEED = 7
# What TickLake syncs, by the names it gives: forgotten, each of them must show.
SYNCED = {
    "a batch file": r"\.batch_.*\.tmp|batch_.*",
    "the folder of batch files": RUN_ID,
    "the database": r".*\.sqlite(-wal)?",
    "a Parquet file": r".*\.parquet",
    "a commit": r"\.\d{20}\.json.*\.tmp|\d{20}\.json",
    "the folder of commits": r"_delta_log",
}


def test_ten_cuts_lose_nothing_that_was_promised_and_everything_goes_on(recording: Path) -> None:
    said = play(recording, "--cuts", "10", "--seed", str(SEED))
    assert "power cuts  10" in said
    assert "lost        0" in said
    assert "doubled     0" in said


@pytest.mark.slow
@pytest.mark.parametrize("forgotten", SYNCED)
def test_a_sync_that_is_forgotten_is_noticed(recording: Path, forgotten: str) -> None:
    said = play(recording, "--cuts", "4", "--seed", str(SEED), "--unsynced", SYNCED[forgotten], fails=True)
    assert "wrong" in said


def test_what_was_recorded_adds_up_to_what_is_there(recording: Path, tmp_path: Path) -> None:
    """Or the cuts would be tried on another disk than the real one."""
    events = pickle.loads(recording.read_bytes())
    everything = [*events, *(Sync(inode, len(events)) for inode in range(len(events)))]
    disk.build(tmp_path / "root", *disk.image(everything, Cut(len(everything), "strict")))
    there, built = (sorted(below(root)) for root in (recording.with_name("left"), tmp_path / "root"))
    assert built == there
    assert len(there) > 50
    # SQLite keeps an index there that processes share in memory, and makes it again when it opens the file.
    for path in (one for one in there if not one.endswith("-shm")):
        assert filecmp.cmp(recording.with_name("left") / path, tmp_path / "root" / path, shallow=False), path


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recording")
    (folder / "events").write_bytes(pickle.dumps(powercut.recorded(folder)))
    return folder / "events"


def play(recording: Path, *options: str, fails: bool = False) -> str:
    command: Sequence[str] = [sys.executable, powercut.__file__, "--recording", str(recording), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == fails, done.stdout + done.stderr
    return done.stdout


def below(root: Path) -> list[str]:
    return [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]
