"""Vacuum: what no recent version needs goes, everything else stays, whoever is at work."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from ticklake.errors import DamagedCommit, LakeUnwritable, RetentionTooShort
from ticklake.lake.delta import log
from ticklake.lake.delta.parquet import ParquetFile, ParquetFileWriter
from ticklake.lake.ledger import Ledger
from ticklake.lake.table import Table
from ticklake.lake.upkeep.compaction import BY_HAND, Compaction
from ticklake.lake.upkeep.vacuum import RETENTION, Vacuum
from ticklake.ticks import TickRange

SCHEMA = pa.schema([("tick_number", pa.int64()), ("cell_id", pa.int32())])
TABLE = Table("cells", SCHEMA, ("tick_number", "cell_id"))
DAY = 86_400.0


def write(directory: Path, name: str, ticks: list[int]) -> ParquetFile:
    writer = ParquetFileWriter(directory, name, TABLE)
    writer.append(pa.RecordBatch.from_arrays([ticks, [0] * len(ticks)], schema=SCHEMA))
    file = writer.close()
    assert file is not None
    return file


def age(directory: Path, days: float) -> None:
    """Makes everything there so much older."""
    for path in directory.rglob("*"):
        facts = path.stat()
        os.utime(path, (facts.st_atime, facts.st_mtime - days * DAY))


def found(directory: Path, older_than: float = RETENTION, *, force: bool = False) -> list[str]:
    return [one.path.name for one in Vacuum(directory, older_than, force=force).find()]


def vacuum(directory: Path, older_than: float = RETENTION, *, force: bool = False) -> list[str]:
    it = Vacuum(directory, older_than, force=force)
    return [one.path.name for one in it.remove(it.find())]


@pytest.fixture
def compacted(tmp_path: Path) -> Ledger:
    """Two files, made two weeks ago and replaced by a third one a week later, just now in the tests' time."""
    ledger = Ledger(tmp_path, TABLE)
    for name, tick in (("a.parquet", 1), ("b.parquet", 2)):
        ledger.commit([write(tmp_path, name, [tick])], {})
    age(tmp_path, 14)
    assert sum(step.files_removed for step in Compaction(ledger, BY_HAND).steps()) == 2
    return ledger


def test_what_a_version_within_the_retention_needs_stays(compacted: Ledger) -> None:
    assert found(compacted.directory) == []
    age(compacted.directory, 6.9)
    assert found(compacted.directory) == []
    assert DeltaTable(compacted.directory, version=2).to_pyarrow_table().num_rows == 2


def test_what_only_older_versions_need_goes(compacted: Ledger) -> None:
    age(compacted.directory, 7.1)
    assert vacuum(compacted.directory) == ["a.parquet", "b.parquet"]
    assert DeltaTable(compacted.directory).to_pyarrow_table().num_rows == 2
    assert Ledger(compacted.directory, TABLE).present([TickRange(0, 9)]).tolist() == [1, 2]
    assert vacuum(compacted.directory) == []


def test_looking_removes_nothing(compacted: Ledger) -> None:
    age(compacted.directory, 30)
    assert found(compacted.directory) == ["a.parquet", "b.parquet"]
    assert (compacted.directory / "a.parquet").exists()


def test_what_a_dead_flush_has_left_goes_and_a_living_one_is_left_alone(compacted: Ledger) -> None:
    directory = compacted.directory
    write(directory, "dead.parquet", [3])
    (directory / "_delta_log" / ".00000000000000000009.json.77-ab12cd34.tmp").write_text("half")
    (directory / "_delta_log" / "00000000000000000009.json.torn").write_text("half")
    (directory / "_delta_log" / "00000000000000000002.checkpoint.parquet#1").write_text("half")
    age(directory, 7.1)
    write(directory, "alive.parquet", [4])
    assert sorted(vacuum(directory)) == [
        ".00000000000000000009.json.77-ab12cd34.tmp",
        "00000000000000000002.checkpoint.parquet#1",
        "00000000000000000009.json.torn",
        "a.parquet",
        "b.parquet",
        "dead.parquet",
    ]
    assert (directory / "alive.parquet").exists()


def test_a_file_that_is_committed_between_look_and_removal_stays(compacted: Ledger) -> None:
    late = write(compacted.directory, "late.parquet", [5])
    it = Vacuum(compacted.directory, 0, force=True, clock=lambda: time.time() + 1)
    garbage = it.find()
    assert "late.parquet" in {one.path.name for one in garbage}
    compacted.commit([late], {})
    assert "late.parquet" not in {one.path.name for one in it.remove(garbage)}
    assert DeltaTable(compacted.directory).to_pyarrow_table().num_rows == 3


def test_a_commit_of_a_file_that_was_removed_fails_and_changes_nothing(compacted: Ledger) -> None:
    late = write(compacted.directory, "late.parquet", [5])
    it = Vacuum(compacted.directory, 0, force=True, clock=lambda: time.time() + 1)
    list(it.remove(it.find()))
    with pytest.raises(LakeUnwritable):
        compacted.commit([late], {})
    assert DeltaTable(compacted.directory).to_pyarrow_table().num_rows == 2


def test_no_commit_comes_between_the_look_and_the_removal(compacted: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit waits for the vacuum: it would wait here for ever if the lock were not the very same."""
    import fcntl

    held: list[bool] = []

    def reach(point: str) -> None:
        if point == "lake.vacuum.remove":
            with (compacted.directory / "_delta_log" / "_ticklake.lock").open("ab") as file:
                with pytest.raises(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                held.append(True)

    age(compacted.directory, 30)
    monkeypatch.setattr("ticklake.faults.reach", reach)
    assert len(vacuum(compacted.directory)) == 2
    assert held == [True]


def test_a_short_retention_is_refused_unless_it_is_forced(compacted: Ledger) -> None:
    with pytest.raises(RetentionTooShort, match="--force"):
        Vacuum(compacted.directory, DAY - 1)
    age(compacted.directory, 0.1)
    assert vacuum(compacted.directory, 60, force=True) == ["a.parquet", "b.parquet"]


def test_old_checkpoints_go_and_every_version_within_the_retention_still_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "_CHECKPOINT_EVERY", 2)
    ledger = Ledger(tmp_path, TABLE)
    for number in range(7):
        ledger.commit([write(tmp_path, f"{number}.parquet", [number])], {})
    age(tmp_path, 8)
    assert vacuum(tmp_path) == [f"{version:020d}.checkpoint.parquet" for version in (2, 4)]
    for version in (2, 3, 6, 7):
        assert DeltaTable(tmp_path, version=version).to_pyarrow_table().num_rows == version
    assert Ledger(tmp_path, TABLE).version == 7


def test_a_table_that_cannot_be_read_is_not_touched(compacted: Ledger) -> None:
    age(compacted.directory, 30)
    for commit in (compacted.directory / "_delta_log").glob("*.json"):
        commit.write_text("{}")
    with pytest.raises(DamagedCommit):
        vacuum(compacted.directory)
    assert (compacted.directory / "a.parquet").exists()
