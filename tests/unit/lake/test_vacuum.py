"""Vacuum: what no recent version needs goes, everything else stays, whoever is at work."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from ticklake.errors import DamagedCommit, LakeUnwritable, RetentionTooShort
from ticklake.lake.delta import DeltaLog, Location, log
from ticklake.lake.delta.parquet import ParquetFile, ParquetFileWriter
from ticklake.lake.ledger import Ledger
from ticklake.lake.table import Table
from ticklake.lake.upkeep.compaction import BY_HAND, Compaction
from ticklake.lake.upkeep.vacuum import RETENTION, Vacuum
from ticklake.lake.verify.inspection import inspected
from ticklake.ticks import TickRange

SCHEMA = pa.schema([("tick_number", pa.int64()), ("cell_id", pa.int32())])
TABLE = Table("cells", SCHEMA, ("tick_number", "cell_id"))
DAY = 86_400.0


def folder_of(log: DeltaLog) -> Path:
    return Path(str(log.location))


def write(directory: Path, name: str, ticks: list[int]) -> ParquetFile:
    writer = ParquetFileWriter(Location.of(directory), name, TABLE)
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
    return [
        one.file.name for one in Vacuum(Location.of(directory), directory.parent.name, older_than, force=force).find()
    ]


def vacuum(directory: Path, older_than: float = RETENTION, *, force: bool = False) -> list[str]:
    it = Vacuum(Location.of(directory), directory.parent.name, older_than, force=force)
    return [one.file.name for one in it.remove(it.find())]


@pytest.fixture
def compacted(tmp_path: Path) -> Ledger:
    """Two files, made two weeks ago and replaced by a third one a week later, just now in the tests' time."""
    ledger = Ledger(Location.of(tmp_path), TABLE)
    for name, tick in (("a.parquet", 1), ("b.parquet", 2)):
        ledger.commit([write(tmp_path, name, [tick])], {})
    age(tmp_path, 14)
    assert sum(step.files_removed for step in Compaction(ledger, BY_HAND).steps()) == 2
    return ledger


def test_what_a_version_within_the_retention_needs_stays(compacted: Ledger) -> None:
    assert found(folder_of(compacted)) == []
    age(folder_of(compacted), 6.9)
    assert found(folder_of(compacted)) == []
    assert DeltaTable(str(compacted.location), version=2).to_pyarrow_table().num_rows == 2


def test_what_only_older_versions_need_goes(compacted: Ledger) -> None:
    age(folder_of(compacted), 7.1)
    assert vacuum(folder_of(compacted)) == ["a.parquet", "b.parquet"]
    assert DeltaTable(str(compacted.location)).to_pyarrow_table().num_rows == 2
    assert Ledger(compacted.location, TABLE).present([TickRange(0, 9)]).tolist() == [1, 2]
    assert vacuum(folder_of(compacted)) == []


def test_looking_removes_nothing(compacted: Ledger) -> None:
    age(folder_of(compacted), 30)
    assert found(folder_of(compacted)) == ["a.parquet", "b.parquet"]
    assert (folder_of(compacted) / "a.parquet").exists()


def test_what_a_dead_flush_has_left_goes_and_a_living_one_is_left_alone(compacted: Ledger) -> None:
    directory = folder_of(compacted)
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
    late = write(folder_of(compacted), "late.parquet", [5])
    it = Vacuum(compacted.location, folder_of(compacted).parent.name, 0, force=True, clock=lambda: time.time() + 1)
    garbage = it.find()
    assert "late.parquet" in {one.file.name for one in garbage}
    compacted.commit([late], {})
    assert "late.parquet" not in {one.file.name for one in it.remove(garbage)}
    assert DeltaTable(str(compacted.location)).to_pyarrow_table().num_rows == 3


def test_a_commit_of_a_file_that_was_removed_fails_and_changes_nothing(compacted: Ledger) -> None:
    late = write(folder_of(compacted), "late.parquet", [5])
    it = Vacuum(compacted.location, folder_of(compacted).parent.name, 0, force=True, clock=lambda: time.time() + 1)
    list(it.remove(it.find()))
    with pytest.raises(LakeUnwritable):
        compacted.commit([late], {})
    assert DeltaTable(str(compacted.location)).to_pyarrow_table().num_rows == 2


def test_no_commit_comes_between_the_look_and_the_removal(compacted: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit waits for the vacuum: it would wait here for ever if the lock were not the very same."""
    import fcntl

    held: list[bool] = []

    def reach(point: str) -> None:
        if point == "lake.vacuum.remove":
            with (folder_of(compacted) / "_delta_log" / "_ticklake.lock").open("ab") as file:
                with pytest.raises(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                held.append(True)

    age(folder_of(compacted), 30)
    monkeypatch.setattr("ticklake.faults.reach", reach)
    assert len(vacuum(folder_of(compacted))) == 2
    assert held == [True]


def test_a_short_retention_is_refused_unless_it_is_forced(compacted: Ledger) -> None:
    with pytest.raises(RetentionTooShort, match="--force"):
        Vacuum(compacted.location, folder_of(compacted).parent.name, DAY - 1)
    age(folder_of(compacted), 0.1)
    assert vacuum(folder_of(compacted), 60, force=True) == ["a.parquet", "b.parquet"]


def test_old_checkpoints_go_and_every_version_within_the_retention_still_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "_CHECKPOINT_EVERY", 2)
    ledger = Ledger(Location.of(tmp_path), TABLE)
    for number in range(7):
        ledger.commit([write(tmp_path, f"{number}.parquet", [number])], {})
    age(tmp_path, 8)
    assert vacuum(tmp_path) == [f"{version:020d}.checkpoint.parquet" for version in (2, 4)]
    for version in (2, 3, 6, 7):
        assert DeltaTable(tmp_path, version=version).to_pyarrow_table().num_rows == version
    assert Ledger(Location.of(tmp_path), TABLE).version == 7


def test_a_table_that_cannot_be_read_is_not_touched(compacted: Ledger) -> None:
    age(folder_of(compacted), 30)
    for commit in (folder_of(compacted) / "_delta_log").glob("*.json"):
        commit.write_text("{}")
    with pytest.raises(DamagedCommit):
        vacuum(folder_of(compacted))
    assert (folder_of(compacted) / "a.parquet").exists()


def checkpointed(directory: Path, commits: int = 4) -> Ledger:
    """A table of so many commits of one tick each, a checkpoint after every second one."""
    ledger = Ledger(Location.of(directory), TABLE)
    for number in range(commits):
        ledger.commit([write(directory, f"{number}.parquet", [number])], {})
        if number % 2:
            ledger.checkpoint()
    return ledger


@pytest.mark.parametrize("cleaned_up", [False, True])
@pytest.mark.parametrize(
    "name",
    [
        "backup.checkpoint.parquet",
        "00000000000000000009_old.checkpoint.parquet",
        "00000000000000000009-copy.checkpoint.parquet",
        "9.checkpoint.parquet",
        "99999999999999999999999.checkpoint.parquet",
        "00000000000000000009.checkpoint.0000000001.0000000002.parquet",
    ],
)
def test_the_newest_checkpoint_stays_whatever_lies_beside_it(tmp_path: Path, name: str, cleaned_up: bool) -> None:
    """Also if another engine has removed the commits that it sums up: then nothing else tells of them."""
    ledger = checkpointed(tmp_path)
    newest = folder_of(ledger) / "_delta_log" / f"{4:020d}.checkpoint.parquet"
    shutil.copy2(newest, folder_of(ledger) / "_delta_log" / name)
    if cleaned_up:
        for version in range(4):
            (folder_of(ledger) / "_delta_log" / f"{version:020d}.json").unlink()
    age(tmp_path, 30)
    gone = vacuum(tmp_path)
    assert newest.exists()
    assert gone == ([] if cleaned_up else [f"{2:020d}.checkpoint.parquet"])
    assert DeltaTable(tmp_path).to_pyarrow_table().num_rows == 4
    assert Ledger(Location.of(tmp_path), TABLE).present([TickRange(0, 9)]).tolist() == [0, 1, 2, 3]


def test_a_checkpoint_that_the_hint_names_stays(tmp_path: Path) -> None:
    """A table does not open while the hint names a checkpoint that is gone."""
    ledger = checkpointed(tmp_path, 6)
    hint = folder_of(ledger) / "_delta_log" / "_last_checkpoint"
    told = json.loads(hint.read_text())
    age(tmp_path, 30)
    hint.write_bytes(b"what?")
    assert found(tmp_path) == []
    hint.write_text(json.dumps(told | {"version": 2}))
    assert vacuum(tmp_path) == [f"{4:020d}.checkpoint.parquet"]
    assert DeltaTable(tmp_path).to_pyarrow_table().num_rows == 6


def test_old_checkpoints_stay_while_older_versions_need_them(tmp_path: Path) -> None:
    ledger = checkpointed(tmp_path)
    for version in range(2):
        (folder_of(ledger) / "_delta_log" / f"{version:020d}.json").unlink()
    age(tmp_path, 30)
    assert vacuum(tmp_path) == []
    assert DeltaTable(tmp_path, version=3).to_pyarrow_table().num_rows == 3


def test_a_checkpoint_that_is_the_only_one_at_its_removal_stays(tmp_path: Path) -> None:
    ledger = checkpointed(tmp_path)
    age(tmp_path, 30)
    it = Vacuum(Location.of(tmp_path), tmp_path.parent.name)
    garbage = it.find()
    assert [one.file.name for one in garbage] == [f"{2:020d}.checkpoint.parquet"]
    (folder_of(ledger) / "_delta_log" / "_last_checkpoint").unlink()
    (folder_of(ledger) / "_delta_log" / f"{4:020d}.checkpoint.parquet").unlink()
    assert list(it.remove(garbage)) == []


def test_all_parts_of_an_old_checkpoint_go(tmp_path: Path) -> None:
    ledger = checkpointed(tmp_path)
    old = folder_of(ledger) / "_delta_log" / f"{2:020d}.checkpoint.parquet"
    parts = [f"{2:020d}.checkpoint.000000000{part}.0000000002.parquet" for part in (1, 2)]
    for part in parts:
        shutil.copy2(old, folder_of(ledger) / "_delta_log" / part)
    old.rename(folder_of(ledger) / "_delta_log" / f"{2:020d}.checkpoint.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.parquet")
    age(tmp_path, 30)
    assert vacuum(tmp_path) == [*parts, f"{2:020d}.checkpoint.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.parquet"]


@pytest.mark.parametrize(
    "name", ["9.checkpoint.parquet", "00000000000000000009.checkpoint.0000000001.0000000002.parquet"]
)
def test_what_is_no_whole_checkpoint_makes_up_for_no_commit(tmp_path: Path, name: str) -> None:
    ledger = Ledger(Location.of(tmp_path), TABLE)
    for number in range(3):
        ledger.commit([write(tmp_path, f"{number}.parquet", [number])], {})
    (folder_of(ledger) / "_delta_log" / name).write_bytes(b"")
    (folder_of(ledger) / "_delta_log" / f"{2:020d}.json").unlink()
    with pytest.raises(DamagedCommit, match="missing"):
        vacuum(tmp_path)


@pytest.mark.parametrize("name", ["3.json", "003.json", "000000000000000000003.json"])
def test_a_file_with_a_shorter_or_longer_number_is_no_commit(tmp_path: Path, name: str) -> None:
    ledger = checkpointed(tmp_path)
    (folder_of(ledger) / "_delta_log" / name).write_text("notes")
    assert found(tmp_path, 0, force=True) == [f"{2:020d}.checkpoint.parquet"]
    assert inspected(Location.of(tmp_path)).flaws == {}
