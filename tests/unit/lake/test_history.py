"""A log is followed and added to only as long as it is the very one that was looked at."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from ticklake import SimulationMetadata, faults
from ticklake.contracts import EnvironmentConfig
from ticklake.errors import DamagedCommit, LakeUnreadable, TableReplaced, TableUnreadable
from ticklake.lake.delta import DeltaLog, Location, commits, history, log, recovery
from ticklake.lake.delta.folder import TableFolder
from ticklake.lake.delta.log import CommitConflict
from ticklake.lake.delta.parquet import ParquetFile, ParquetFileWriter
from ticklake.lake.delta.summary import Summary
from ticklake.lake.empty import EMPTY, REMOVED
from ticklake.lake.ledger import Ledger, open_existing
from ticklake.lake.metadata import read_metadata, write_metadata
from ticklake.lake.table import Table
from ticklake.lake.upkeep.compaction import BY_HAND, Compaction
from ticklake.lake.upkeep.vacuum import Vacuum
from ticklake.lake.verify.coverage import covered
from ticklake.ticks import TickRange

SCHEMA = pa.schema([("tick_number", pa.int64()), ("cell_id", pa.int32())])
TABLE = Table("cells", SCHEMA, ("tick_number", "cell_id"))
ALL = [TickRange(0, 99)]


def folder_of(log: DeltaLog) -> Path:
    return Path(str(log.location))


def write(directory: Path, *ticks: int) -> ParquetFile:
    writer = ParquetFileWriter(Location.of(directory), f"{uuid4().hex}.parquet", TABLE)
    writer.append(pa.RecordBatch.from_arrays([list(ticks), [0] * len(ticks)], schema=SCHEMA))
    file = writer.close()
    assert file is not None
    return file


def add(ledger: Ledger, *ticks: int) -> None:
    ledger.commit([write(folder_of(ledger), *ticks)], {})


def commit_of(ledger: Ledger, version: int) -> Path:
    return folder_of(ledger) / "_delta_log" / commits.name_of(version)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """Four commits of one tick each."""
    made = Ledger(Location.of(tmp_path / "cells"), TABLE)
    for tick in range(1, 5):
        add(made, tick)
    return made


def made_anew(ledger: Ledger, *ticks: int) -> Ledger:
    folder_of(ledger).rename(folder_of(ledger).with_name(f"away-{uuid4().hex}"))
    anew = Ledger(ledger.location, TABLE)
    for tick in ticks:
        add(anew, tick)
    return anew


@given(st.sets(st.integers(0, 12)), st.integers(-1, 12))
def test_a_hole_is_the_first_version_that_a_later_one_needs(versions: set[int], summed_up: int) -> None:
    expected = [v for v in range(summed_up + 1, 13) if v not in versions and any(later > v for later in versions)]
    assert history.missing(versions, summed_up) == (expected[0] if expected else None)


@pytest.mark.parametrize("others", [(), (1,), (1, 2, 3, 4), (1, 2, 3, 4, 5)])
def test_a_commit_meant_for_a_table_that_was_moved_away_is_a_conflict(ledger: Ledger, others: tuple[int, ...]) -> None:
    anew = made_anew(ledger, *others)
    with pytest.raises(CommitConflict):
        ledger.commit([], {})
    for _ in range(2):
        with pytest.raises(TableReplaced):
            ledger.refresh()
    again = Ledger(ledger.location, TABLE)
    assert (again.id, again.head) == (anew.id, anew.head)
    assert again.present(ALL).tolist() == list(others)


def test_a_copy_of_a_table_in_its_place_is_the_same_history(ledger: Ledger) -> None:
    shutil.copytree(str(ledger.location), folder_of(ledger).with_name("copy"))
    shutil.rmtree(folder_of(ledger))
    folder_of(ledger).with_name("copy").rename(str(ledger.location))
    add(ledger, 5)
    assert Ledger(ledger.location, TABLE).present(ALL).tolist() == [1, 2, 3, 4, 5]


@pytest.mark.warns("Set .* aside")
def test_a_commit_behind_one_that_was_set_aside_is_a_conflict(ledger: Ledger) -> None:
    os.truncate(commit_of(ledger, 4), 50)
    other = Ledger(ledger.location, TABLE)
    for _ in range(2):
        with pytest.raises(CommitConflict):
            ledger.commit([], {})
        add(other, 4)
    ledger.refresh()
    assert ledger.head == other.head


@pytest.mark.warns("Set .* aside")
def test_a_torn_commit_is_set_aside_also_by_one_who_has_the_table_open(ledger: Ledger) -> None:
    behind = Ledger(ledger.location, TABLE)
    add(ledger, 5)
    os.truncate(commit_of(ledger, 5), 50)
    behind.refresh()
    add(behind, 5)
    assert Ledger(ledger.location, TABLE).present(ALL).tolist() == [1, 2, 3, 4, 5]


@pytest.mark.warns("Set .* aside")
def test_the_slower_of_two_that_find_a_torn_commit_leaves_what_the_other_wrote_alone(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.truncate(commit_of(ledger, 4), 50)
    faster: list[Ledger] = []

    def reach(point: str) -> None:
        if point == "lake.torn" and not faster:
            monkeypatch.undo()
            faster.append(Ledger(ledger.location, TABLE))
            add(faster[0], 4)

    monkeypatch.setattr(faults, "reach", reach)
    slower = Ledger(ledger.location, TABLE)
    assert slower.head == faster[0].head
    assert slower.present(ALL).tolist() == [1, 2, 3, 4]


def touched(ledger: Ledger) -> list[str]:
    """Files that somebody has set aside."""
    return sorted(path.name for path in folder_of(ledger).rglob("*.torn"))


@pytest.mark.parametrize("keep", [0, 50])
@pytest.mark.parametrize("version", [0, 2, 3])
def test_a_commit_that_another_was_made_after_was_on_disk_and_is_never_set_aside(
    ledger: Ledger, version: int, keep: int
) -> None:
    whole = commit_of(ledger, version).read_bytes()
    os.truncate(commit_of(ledger, version), keep)
    with pytest.raises(DamagedCommit, match=f"{version:020d}.json is damaged"):
        Ledger(ledger.location, TABLE)
    with pytest.raises(DamagedCommit):
        Vacuum(ledger.location, folder_of(ledger).parent.name, 0, force=True).find()
    assert not touched(ledger)
    commit_of(ledger, version).write_bytes(whole)
    assert Ledger(ledger.location, TABLE).present(ALL).tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("keep", [0, 50])
def test_a_commit_that_was_seen_whole_is_never_set_aside(ledger: Ledger, keep: int) -> None:
    whole = commit_of(ledger, 4).read_bytes()
    os.truncate(commit_of(ledger, 4), keep)
    os.utime(commit_of(ledger, 4), (0, 0))
    for _ in range(2):
        with pytest.raises(DamagedCommit, match="it was complete"):
            ledger.refresh()
    assert not touched(ledger)
    commit_of(ledger, 4).write_bytes(whole)
    ledger.refresh()
    add(ledger, 5)
    assert Ledger(ledger.location, TABLE).present(ALL).tolist() == [1, 2, 3, 4, 5]


def test_a_commit_that_a_checkpoint_of_ours_sums_up_is_never_set_aside(ledger: Ledger) -> None:
    ledger.checkpoint()
    os.truncate(commit_of(ledger, 4), 0)
    os.utime(commit_of(ledger, 4), (0, 0))
    with pytest.raises(DamagedCommit, match="empty or cut off"):
        Ledger(ledger.location, TABLE)
    assert not touched(ledger)


def nested(what: str) -> str:
    """A value deeper than anybody can follow, as text."""
    return json.dumps({what: "[" * 100_000 + "]" * 100_000})


def foreign_commit(ledger: Ledger, info: str) -> None:
    """One without a checksum, as another engine writes it."""
    commit_of(ledger, ledger.version + 1).write_text(f'{{"commitInfo":{info}}}\n')


NO_INFO = [nested(EMPTY), nested(REMOVED), json.dumps({EMPTY: "[[1]]"}), json.dumps({REMOVED: [1, 2]})]


@pytest.mark.parametrize("info", NO_INFO, ids=lambda info: info[:20])
def test_a_commit_that_says_of_itself_what_nobody_can_follow_is_one_clear_error(ledger: Ledger, info: str) -> None:
    foreign_commit(ledger, info)
    uses: list[Callable[[], Any]] = [
        ledger.refresh,
        ledger.refresh,
        lambda: Ledger(ledger.location, TABLE),
        lambda: covered(ledger.location),
    ]
    for use in uses:
        with pytest.raises((DamagedCommit, TableUnreadable, LakeUnreadable)) as caught:
            use()
        assert "\n" not in str(caught.value) and len(str(caught.value)) < 1000
    commit_of(ledger, ledger.version + 1).unlink()
    ledger.refresh()
    assert ledger.present(ALL).tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "info", ["[]", "null", "7", f'{{"a":{"[" * 100_000}{"]" * 100_000}}}'], ids=lambda info: info[:20]
)
def test_a_commit_with_another_kind_of_info_is_none(info: str) -> None:
    data = f'{{"commitInfo":{info}}}\n'.encode()
    for read in (commits.info_of, lambda data: commits.decode_commit(data, "tick_number")):
        with pytest.raises(ValueError, match="its actions are not valid"):
            read(data)


def test_sources_that_nobody_can_follow_tell_nothing_of_what_was_added(ledger: Ledger) -> None:
    foreign_commit(ledger, nested(commits.SOURCES))
    assert commits.added_ticks(Location.of(folder_of(ledger) / "_delta_log"), ledger.version + 1) is None


@pytest.mark.parametrize("text", ["[" * 100_000 + "]" * 100_000, "[]"], ids=["deep", "another kind"])
def test_a_summary_that_nobody_can_follow_is_none(ledger: Ledger, text: str) -> None:
    summary = folder_of(ledger) / "_delta_log" / "_ticklake_summary.json"
    summary.write_text(f"{text}\n{zlib.crc32(text.encode()):08x}")
    assert Summary.stored(Location.of(summary.parent)) == Summary()
    assert Ledger(ledger.location, TABLE).present(ALL).tolist() == [1, 2, 3, 4]


def test_a_newest_commit_that_is_being_copied_back_is_waited_for(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = commit_of(ledger, 4).read_bytes()
    os.truncate(commit_of(ledger, 4), 0)
    copied: list[int] = []

    def sleep(_: float) -> None:
        # As `cp` does: into the very file that is there.
        if not copied:
            copied.append(commit_of(ledger, 4).write_bytes(whole))

    monkeypatch.setattr(recovery.time, "sleep", sleep)
    assert Ledger(ledger.location, TABLE).present(ALL).tolist() == [1, 2, 3, 4]
    assert copied and not touched(ledger)


def test_a_checkpoint_does_not_sum_up_a_commit_that_is_being_copied(ledger: Ledger) -> None:
    whole = commit_of(ledger, 2).read_bytes()
    os.truncate(commit_of(ledger, 2), 0)
    with pytest.raises(DamagedCommit):
        ledger.checkpoint()
    commit_of(ledger, 2).write_bytes(whole)
    assert Ledger(ledger.location, TABLE).present(ALL).tolist() == [1, 2, 3, 4]


def test_a_commit_that_is_empty_only_while_the_table_is_opened_is_not_passed_over(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, opened = commit_of(ledger, 2).read_bytes(), log.DeltaTable
    os.utime(commit_of(ledger, 2), (0, 0))

    def amid_a_copy(directory: Path) -> DeltaTable:
        monkeypatch.setattr(log, "DeltaTable", opened)
        os.truncate(commit_of(ledger, 2), 0)
        found = opened(directory)
        commit_of(ledger, 2).write_bytes(whole)
        os.utime(commit_of(ledger, 2), (0, 0))
        return found

    monkeypatch.setattr(log, "DeltaTable", amid_a_copy)
    assert Ledger(ledger.location, TABLE).present(ALL).tolist() == [1, 2, 3, 4]


def test_a_backup_that_is_copied_over_a_table_in_use_takes_nothing_away(ledger: Ledger) -> None:
    backup = folder_of(ledger).with_name("backup")
    shutil.copytree(str(ledger.location), backup)
    for _ in range(15):
        with subprocess.Popen(["cp", "-a", f"{backup}/.", str(ledger.location)]) as copy:
            while copy.poll() is None:
                with suppress(DamagedCommit):
                    ledger.refresh()
    assert not touched(ledger)
    ledger.refresh()
    add(ledger, 5)
    assert Ledger(ledger.location, TABLE).present(ALL).tolist() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("missing", [0, 1, 3])
def test_a_log_with_a_hole_is_refused_and_nothing_is_touched(ledger: Ledger, missing: int) -> None:
    commit_of(ledger, missing).rename(folder_of(ledger) / "kept")
    names = sorted(path.name for path in folder_of(ledger).rglob("*"))
    with pytest.raises(DamagedCommit, match=f"{missing:020d}.json is damaged: it is missing"):
        Ledger(ledger.location, TABLE)
    with pytest.raises(DamagedCommit, match="missing"):
        Vacuum(ledger.location, folder_of(ledger).parent.name, 0, force=True).find()
    left = sorted(path.name for path in folder_of(ledger).rglob("*"))
    assert [name for name in left if name != "_ticklake.lock"] == [name for name in names if name != "_ticklake.lock"]
    (folder_of(ledger) / "kept").rename(commit_of(ledger, missing))
    assert Ledger(ledger.location, TABLE).present(ALL).tolist() == [1, 2, 3, 4]


def test_a_writer_that_lags_behind_does_not_fill_a_hole(ledger: Ledger) -> None:
    behind = Ledger(ledger.location, TABLE)
    add(ledger, 5)
    add(ledger, 6)
    commit_of(ledger, 5).unlink()
    with pytest.raises(CommitConflict):
        behind.commit([], {})
    with pytest.raises(DamagedCommit, match="it is missing"):
        behind.refresh()


def test_commits_up_to_a_checkpoint_may_be_missing(ledger: Ledger) -> None:
    ledger.checkpoint()
    for version in range(5):
        commit_of(ledger, version).unlink()
    (folder_of(ledger) / "_delta_log" / "_ticklake_summary.json").unlink()
    again = Ledger(ledger.location, TABLE)
    add(again, 5)
    ledger = Ledger(ledger.location, TABLE)
    assert ledger.present(ALL).tolist() == [1, 2, 3, 4, 5]


def test_a_commit_that_follows_another_one_than_is_there_is_refused(ledger: Ledger) -> None:
    commit_of(ledger, 3).write_bytes(commit_of(ledger, 2).read_bytes())
    with pytest.raises(DamagedCommit, match="its predecessor was another commit 2"):
        Ledger(ledger.location, TABLE)


def test_a_commit_that_is_taken_away_by_hand_in_the_middle_of_the_next_one_leaves_no_hole(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = TableFolder.create

    def taken(folder: TableFolder, name: str, data: bytes) -> None:
        commit_of(ledger, 4).rename(folder_of(ledger) / "kept")
        create(folder, name, data)

    monkeypatch.setattr(TableFolder, "create", taken)
    with pytest.raises(CommitConflict):
        ledger.commit([], {})
    monkeypatch.undo()
    ledger.refresh()
    assert ledger.present(ALL).tolist() == [1, 2, 3]
    assert Ledger(ledger.location, TABLE).version == 3


def test_a_commit_goes_along_with_a_table_that_is_moved_away_in_the_middle_of_it_and_does_not_count(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = TableFolder.create
    anew: list[Ledger] = []

    def moved(folder: TableFolder, name: str, data: bytes) -> None:
        monkeypatch.undo()
        anew.append(made_anew(ledger, 7))
        create(folder, name, data)

    file = write(folder_of(ledger), 5)
    monkeypatch.setattr(TableFolder, "create", moved)
    with pytest.raises(CommitConflict):
        ledger.commit([file], {})
    ledger.discard([file])
    (away,) = folder_of(ledger).parent.glob("away-*")
    assert Ledger(Location.of(away), TABLE).present(ALL).tolist() == [1, 2, 3, 4, 5]
    with pytest.raises(TableReplaced):
        ledger.refresh()
    assert anew[0].head == Ledger(ledger.location, TABLE).head
    assert anew[0].present(ALL).tolist() == [7]


def test_a_checkpoint_and_a_summary_never_land_in_a_table_made_anew(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = TableFolder.replace
    anew: list[Ledger] = []

    def moved(folder: TableFolder, name: str, data: bytes) -> None:
        if not anew:
            anew.append(made_anew(ledger, 7))
        replace(folder, name, data)

    monkeypatch.setattr(TableFolder, "replace", moved)
    ledger.checkpoint()
    assert not list((folder_of(ledger) / "_delta_log").glob("*checkpoint*"))
    assert not list((folder_of(ledger) / "_delta_log").glob("*summary*"))
    assert Ledger(ledger.location, TABLE).present(ALL).tolist() == [7]


def test_vacuum_removes_nothing_from_a_table_made_anew_since_it_looked(ledger: Ledger) -> None:
    stray = write(folder_of(ledger), 8)
    vacuum = Vacuum(ledger.location, folder_of(ledger).parent.name, 0, force=True)
    found = [one for one in vacuum.find() if one.file.name == stray.path]
    anew = made_anew(ledger)
    shutil.copy(next(folder_of(ledger).parent.glob(f"away-*/{stray.path}")), folder_of(anew) / stray.path)
    assert list(vacuum.remove(found)) == []
    assert (folder_of(anew) / stray.path).exists()


def test_files_that_the_table_lists_are_not_discarded(ledger: Ledger) -> None:
    file, stray = write(folder_of(ledger), 5), write(folder_of(ledger), 6)
    ledger.commit([file], {})
    ledger.discard([file, stray])
    assert (folder_of(ledger) / file.path).exists() and not (folder_of(ledger) / stray.path).exists()


def linked_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a network file system that repeats each call: the second one says that the file exists."""
    link = os.link

    def twice(*names: Any, **folders: int) -> None:
        link(*names, **folders)
        link(*names, **folders)

    monkeypatch.setattr(os, "link", twice)


WRITES: dict[str, Callable[[Ledger], object]] = {
    "commit": lambda ledger: add(ledger, 5),
    "remove": lambda ledger: (add(ledger, 5, 6), ledger.remove(TickRange(6, 6))),
    "compact": lambda ledger: (add(ledger, 5), list(Compaction(ledger, BY_HAND).steps())),
}


@pytest.mark.parametrize("act", WRITES.values(), ids=WRITES)
def test_a_conflict_that_is_reported_after_the_fact_costs_no_file(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, act: Callable[[Ledger], object]
) -> None:
    linked_twice(monkeypatch)
    act(ledger)
    rows = DeltaTable(str(ledger.location)).to_pyarrow_table()
    assert sorted(rows.column("tick_number").to_pylist()) == [1, 2, 3, 4, 5]


def test_metadata_whose_commit_is_reported_as_a_conflict_after_the_fact_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    linked_twice(monkeypatch)
    environment = EnvironmentConfig(dimensions=1, shape=[4], toroidal=[True])
    metadata = SimulationMetadata(simulation_run_id="run", environment=environment, sampling_interval=1)
    assert write_metadata(Location.of(tmp_path / "metadata"), metadata)
    found = read_metadata(Location.of(tmp_path / "metadata"), "run")
    assert found is not None and found.simulation_run_id == "run"


def test_compaction_does_not_make_a_table_again_that_was_moved_away(ledger: Ledger) -> None:
    opened = open_existing(ledger.location, folder_of(ledger).parent.name)
    assert opened is not None
    folder_of(ledger).rename(folder_of(ledger).with_name("away"))
    with pytest.raises(FileNotFoundError):
        list(Compaction(opened, BY_HAND).steps())
    assert not ledger.location.exists()
    folder_of(ledger).with_name("away").rename(str(ledger.location))
    assert sum(step.files_removed for step in Compaction(opened, BY_HAND).steps()) == 4


def test_a_checkpoint_that_cannot_be_read_is_not_taken_for_a_torn_one(ledger: Ledger) -> None:
    unreadable = folder_of(ledger) / "_delta_log" / recovery.checkpoint_name(3)
    unreadable.mkdir()
    with TableFolder(ledger.location) as folder, pytest.raises(IsADirectoryError):
        recovery.recover_all(folder)
    assert unreadable.exists()
