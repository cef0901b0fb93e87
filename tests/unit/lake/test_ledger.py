"""The ledger: a table knows which ticks it has, and adds more only if nobody was faster."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ticklake.errors import (
    DamagedTableFile,
    LakeUnreadable,
    LakeUnwritable,
    OtherTableSchema,
    TableReplaced,
    UnknownTableFormat,
)
from ticklake.lake.delta import DeltaLog, Location, TableFile, commits, log, parquet
from ticklake.lake.delta.folder import TableFolder
from ticklake.lake.delta.log import CommitConflict
from ticklake.lake.delta.parquet import ParquetFile, ParquetFileWriter
from ticklake.lake.empty import EMPTY, packed
from ticklake.lake.lake import Lake
from ticklake.lake.ledger import Ledger
from ticklake.lake.table import Table
from ticklake.lake.verify.coverage import covered
from ticklake.ticks import TickRange

SCHEMA = pa.schema([("tick_number", pa.int64()), ("cell_id", pa.int32())])
TABLE = Table("cells", SCHEMA, ("tick_number", "cell_id"))


def folder_of(log: DeltaLog) -> Path:
    return Path(str(log.location))


def write(directory: Path, name: str, ticks: list[int], cells: int = 3) -> ParquetFile:
    writer = ParquetFileWriter(Location.of(directory), name, TABLE)
    numbers = [tick for tick in ticks for _ in range(cells)]
    writer.append(pa.RecordBatch.from_arrays([numbers, list(range(cells)) * len(ticks)], schema=SCHEMA))
    file = writer.close()
    assert file is not None
    return file


def add(ledger: Ledger, name: str, ticks: list[int]) -> None:
    ledger.commit([write(folder_of(ledger), name, ticks)], {})


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(Location.of(tmp_path), TABLE)


def test_a_new_table_has_no_ticks(ledger: Ledger) -> None:
    assert ledger.version == 0
    assert ledger.present([TickRange(0, 10**9)]).tolist() == []


def test_it_tells_exactly_which_ticks_are_there(ledger: Ledger) -> None:
    add(ledger, "a.parquet", [0, 10, 20])
    add(ledger, "b.parquet", [40, 60])
    assert ledger.present([TickRange(5, 45)]).tolist() == [10, 20, 40]
    assert ledger.present([TickRange(0, 0), TickRange(60, 70)]).tolist() == [0, 60]
    assert ledger.present([TickRange(21, 39)]).tolist() == []


def test_ticks_are_told_from_many_row_groups(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", 4)
    add(ledger, "a.parquet", list(range(0, 100, 7)))
    assert ledger.present([TickRange(10, 50)]).tolist() == [14, 21, 28, 35, 42, 49]


def test_no_file_is_read_where_no_bounds_overlap(ledger: Ledger) -> None:
    add(ledger, "a.parquet", [0, 10, 20])
    (folder_of(ledger) / "a.parquet").unlink()
    assert ledger.present([TickRange(21, 1000)]).tolist() == []
    with pytest.raises(DamagedTableFile, match=r"a\.parquet is damaged"):
        ledger.present([TickRange(15, 1000)])


def test_a_lake_that_is_away_is_not_a_damaged_file(ledger: Ledger) -> None:
    add(ledger, "a.parquet", [0, 10, 20])
    folder_of(ledger).rename(folder_of(ledger).with_name("away"))
    with pytest.raises(FileNotFoundError):
        ledger.present([TickRange(15, 1000)])


def test_a_file_is_opened_once_for_all_ranges(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", 4)
    add(ledger, "a.parquet", list(range(0, 100, 7)))
    seen: list[TableFile] = []
    monkeypatch.setattr("ticklake.lake.ledger.opened", lambda file: seen.append(file) or parquet.opened(file))
    assert ledger.present([TickRange(0, 10), TickRange(20, 30), TickRange(50, 70)]).tolist() == [
        0,
        7,
        21,
        28,
        56,
        63,
        70,
    ]
    assert seen == [ledger.location.file("a.parquet")]


def test_the_second_of_two_writers_at_one_version_is_refused_and_sees_why(tmp_path: Path) -> None:
    first, second = Ledger(Location.of(tmp_path), TABLE), Ledger(Location.of(tmp_path), TABLE)
    add(first, "a.parquet", [1, 2])
    file = write(tmp_path, "b.parquet", [2, 3])
    with pytest.raises(CommitConflict):
        second.commit([file], {})
    second.refresh()
    assert second.present([TickRange(2, 3)]).tolist() == [2]
    assert DeltaTable(tmp_path).to_pyarrow_table().num_rows == 6


def test_two_processes_may_create_a_table_at_once(tmp_path: Path) -> None:
    ledgers = [Ledger(Location.of(tmp_path), TABLE) for _ in range(3)]
    assert [one.version for one in ledgers] == [0, 0, 0]


def test_provenance_is_in_the_history(ledger: Ledger) -> None:
    ledger.commit([write(folder_of(ledger), "a.parquet", [1])], {"ticklake.sources": '[{"file": "run/batch_1_1.pb"}]'})
    assert DeltaTable(str(ledger.location)).history(1)[0]["ticklake.sources"] == '[{"file": "run/batch_1_1.pb"}]'


@pytest.mark.warns("Set .* aside")
@pytest.mark.parametrize("keep", [0.0, 0.3, 0.9], ids=["empty", "a third", "most"])
def test_a_newest_commit_torn_by_a_power_cut_is_set_aside_and_can_be_written_again(tmp_path: Path, keep: float) -> None:
    ledger = Ledger(Location.of(tmp_path), TABLE)
    add(ledger, "a.parquet", [1])
    add(ledger, "b.parquet", [2])
    commit = tmp_path / "_delta_log" / f"{2:020d}.json"
    commit.write_bytes(commit.read_bytes()[: int(commit.stat().st_size * keep)])

    again = Ledger(Location.of(tmp_path), TABLE)
    assert again.version == 1
    assert again.present([TickRange(0, 9)]).tolist() == [1]
    add(again, "c.parquet", [2])
    assert set(DeltaTable(tmp_path).to_pyarrow_table().column("tick_number").to_pylist()) == {1, 2}


def test_a_whole_newest_commit_stays(tmp_path: Path) -> None:
    add(Ledger(Location.of(tmp_path), TABLE), "a.parquet", [1])
    assert Ledger(Location.of(tmp_path), TABLE).version == 1


def test_statistics_let_readers_skip_files(ledger: Ledger) -> None:
    add(ledger, "a.parquet", [3, 5])
    actions = pa.table(DeltaTable(str(ledger.location)).get_add_actions(flatten=True)).to_pylist()[0]
    assert (actions["num_records"], actions["min.tick_number"], actions["max.tick_number"]) == (6, 3, 5)
    assert (actions["min.cell_id"], actions["max.cell_id"], actions["null_count.cell_id"]) == (0, 2, 0)


def test_a_table_of_an_unknown_format_is_refused(tmp_path: Path) -> None:
    DeltaTable.create(tmp_path, SCHEMA, configuration={"ticklake.format": "99"}, raise_if_key_not_exists=False)
    with pytest.raises(UnknownTableFormat, match="99"):
        Ledger(Location.of(tmp_path), TABLE)


def test_a_table_with_other_columns_is_refused(tmp_path: Path) -> None:
    DeltaTable.create(tmp_path, pa.schema([("tick_number", pa.int64()), ("other", pa.int32())]))
    with pytest.raises(OtherTableSchema, match="other"):
        Ledger(Location.of(tmp_path), TABLE)


def test_what_somebody_else_committed_is_synced_before_it_counts(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(ledger, "a.parquet", [1])
    later = Ledger(ledger.location, TABLE)
    synced = syncs(monkeypatch)
    later.sync()
    assert synced == [f"{number:020d}.json" for number in (0, 1)]
    later.sync()
    assert len(synced) == 2


@pytest.mark.warns("Set .* aside")
@pytest.mark.parametrize("keep", [0, 100])
def test_a_torn_checkpoint_is_set_aside(ledger: Ledger, keep: int) -> None:
    add(ledger, "a.parquet", [1])
    add(ledger, "b.parquet", [2])
    DeltaTable(str(ledger.location)).create_checkpoint()
    (checkpoint,) = (folder_of(ledger) / "_delta_log").glob("*.checkpoint.parquet")
    checkpoint.write_bytes(checkpoint.read_bytes()[:keep])
    assert Ledger(ledger.location, TABLE).present([TickRange(0, 9)]).tolist() == [1, 2]


def test_a_table_made_anew_has_another_id(tmp_path: Path) -> None:
    first = Ledger(Location.of(tmp_path / "one"), TABLE)
    assert first.id == Ledger(Location.of(tmp_path / "one"), TABLE).id
    assert first.id != Ledger(Location.of(tmp_path / "two"), TABLE).id


def test_ticks_that_are_removed_can_be_indexed_again(ledger: Ledger) -> None:
    add(ledger, "a.parquet", [1, 2, 3, 4])
    ledger.commit([], {"ticklake.empty": "[[5, 7, 1]]"})
    ledger.remove(TickRange(2, 6))
    assert ledger.present([TickRange(0, 9)]).tolist() == [1, 7]
    assert Ledger(ledger.location, TABLE).present([TickRange(0, 9)]).tolist() == [1, 7]
    add(ledger, "b.parquet", [2, 3, 5])
    assert ledger.present([TickRange(0, 9)]).tolist() == [1, 2, 3, 5, 7]
    assert DeltaTable(str(ledger.location)).to_pyarrow_table().num_rows == 12


def test_folders_that_another_indexer_made_a_moment_ago_are_synced_before_anything_is_promised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path / "lake")
    (tmp_path / "lake" / "run" / "cells" / "_delta_log").mkdir(parents=True)
    synced: list[Path] = []
    fsync = os.fsync

    def seen_fsync(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", seen_fsync)
    ledger = lake.ledger("run", TABLE)
    add(ledger, "a.parquet", [1])
    table = folder_of(ledger)
    assert {tmp_path, tmp_path / "lake", table.parent, table, table / "_delta_log"} <= {*synced}


def test_what_is_left_of_a_file_is_synced_before_the_commit_that_removes_some_of_its_ticks(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut must not take the ticks that were to stay."""
    add(ledger, "a.parquet", [1, 2, 3, 4])
    add(ledger, "b.parquet", [5, 6])
    steps: list[str] = []
    fsync, link = os.fsync, os.link

    def seen_fsync(descriptor: int) -> None:
        steps.append(Path(f"/proc/self/fd/{descriptor}").readlink().suffix)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", seen_fsync)
    monkeypatch.setattr(os, "link", lambda *names, **folders: (steps.append("link"), link(*names, **folders)))
    ledger.remove(TickRange(3, 9))
    assert ".parquet" in steps[: steps.index("link")]
    assert ledger.present([TickRange(0, 9)]).tolist() == [1, 2]
    assert len(ledger.files) == 1
    newest = DeltaTable(str(ledger.location)).history(1)[0]
    assert newest["operation"] == "DELETE"
    ledger.remove(TickRange(3, 9))
    assert DeltaTable(str(ledger.location)).version() == newest["version"]


@pytest.mark.warns("Set .* aside")
@pytest.mark.parametrize("keep", [0, 100])
@pytest.mark.parametrize("torn", [[2, 3], [3]])
def test_several_commits_torn_at_once_are_set_aside_with_all_after_them(
    ledger: Ledger, torn: list[int], keep: int
) -> None:
    for number in (1, 2, 3):
        add(ledger, f"{number}.parquet", [number])
    for version in torn:
        commit = folder_of(ledger) / "_delta_log" / f"{version:020d}.json"
        commit.write_bytes(commit.read_bytes()[:keep])
    again = Ledger(ledger.location, TABLE)
    assert again.present([TickRange(0, 9)]).tolist() == list(range(1, torn[0]))
    add(again, "later.parquet", [2, 3])
    assert sorted(set(DeltaTable(str(ledger.location)).to_pyarrow_table().column(0).to_pylist())) == [1, 2, 3]


def syncs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the commits that are synced from now on."""
    found: list[str] = []
    fsync = os.fsync

    def seen(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        found.extend([path.name] if path.suffix == ".json" else [])
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", seen)
    return found


def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The versions of the commits that are read from now on."""
    found: list[int] = []
    read, from_folder = commits.read_commit, TableFolder.read

    def seen(location: Location, version: int) -> bytes | None:
        found.append(version)
        return read(location, version)

    def seen_in_folder(folder: TableFolder, name: str) -> bytes | None:
        found.extend([int(name[:20])] if commits.is_commit(name) else [])
        return from_folder(folder, name)

    monkeypatch.setattr("ticklake.lake.delta.commits.read_commit", seen)
    monkeypatch.setattr(TableFolder, "read", seen_in_folder)
    return found


def test_a_look_at_the_table_reads_only_what_is_new(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Ledger(ledger.location, TABLE)
    for number in range(5):
        add(other, f"{number}.parquet", [number])
    seen = reads(monkeypatch)
    ledger.refresh()
    assert seen == [0, 1, 2, 3, 4, 5, 6]
    ledger.refresh()
    assert seen[7:] == [5, 6]
    assert ledger.present([TickRange(0, 9)]).tolist() == [0, 1, 2, 3, 4]


def test_opening_reads_only_what_came_after_the_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "_CHECKPOINT_EVERY", 10)
    ledger = Ledger(Location.of(tmp_path), TABLE)
    for tick in range(0, 69, 3):
        ledger.commit([write(tmp_path, f"{tick}.parquet", [tick])], {EMPTY: f"[[{tick + 1}, {tick + 2}, 1]]"})
    seen = reads(monkeypatch)
    synced = syncs(monkeypatch)
    again = Ledger(Location.of(tmp_path), TABLE)
    assert set(seen) == {20, 21, 22, 23}
    again.sync()
    assert synced == [f"{number:020d}.json" for number in (21, 22, 23)]
    assert again.present([TickRange(0, 999)]).tolist() == list(range(69))
    assert covered(Location.of(tmp_path)).ticks.tolist() == list(range(69))


def test_without_its_summary_a_table_opens_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "_CHECKPOINT_EVERY", 2)
    ledger = Ledger(Location.of(tmp_path), TABLE)
    for number in range(5):
        ledger.commit([], {EMPTY: f"[[{number}, {number}, 1]]"})
    (summary,) = (tmp_path / "_delta_log").glob("_ticklake_summary.json")
    for content in ("", "{}", '{"table": "another", "version": 4, "empty": "[[0, 99, 1]]"}'):
        summary.write_text(content)
        assert Ledger(Location.of(tmp_path), TABLE).present([TickRange(0, 9)]).tolist() == [0, 1, 2, 3, 4]
    summary.unlink()
    assert Ledger(Location.of(tmp_path), TABLE).present([TickRange(0, 9)]).tolist() == [0, 1, 2, 3, 4]


def test_ticks_without_rows_that_another_indexer_has_recorded_are_seen(ledger: Ledger) -> None:
    Ledger(ledger.location, TABLE).commit([], {EMPTY: "[[4, 8, 2]]"})
    ledger.refresh()
    assert ledger.present([TickRange(5, 9)]).tolist() == [6, 8]


def test_what_other_engines_commit_is_followed(ledger: Ledger) -> None:
    rows = pa.table([[7, 7], [1, 2]], schema=SCHEMA)
    write_deltalake(str(ledger.location), rows, mode="append")
    ledger.refresh()
    assert ledger.present([TickRange(0, 99)]).tolist() == [7]
    add(ledger, "a.parquet", [8])
    DeltaTable(str(ledger.location)).delete("tick_number = 7")
    DeltaTable(str(ledger.location)).alter.set_table_properties({"delta.checkpointInterval": "50"})
    ledger.refresh()
    assert ledger.present([TickRange(0, 99)]).tolist() == [8]
    add(ledger, "b.parquet", [9])
    assert DeltaTable(str(ledger.location)).version() == ledger.version == 5


def test_a_table_that_asks_more_of_its_writers_than_we_do_is_refused(ledger: Ledger) -> None:
    DeltaTable(str(ledger.location)).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    with pytest.raises(UnknownTableFormat, match="writer version"):
        ledger.refresh()


def test_a_file_that_is_gone_is_not_committed(ledger: Ledger) -> None:
    file = write(folder_of(ledger), "a.parquet", [1])
    (folder_of(ledger) / "a.parquet").unlink()
    with pytest.raises(LakeUnwritable, match=r"a\.parquet"):
        ledger.commit([file], {})
    assert ledger.version == 0


def test_a_commit_is_whole_and_on_disk_before_it_has_its_name(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    link, fsync = os.link, os.fsync
    monkeypatch.setattr(os, "link", lambda *names, **folders: (steps.append("link"), link(*names, **folders)))
    monkeypatch.setattr(os, "fsync", lambda file: (steps.append("sync"), fsync(file)))
    file = write(folder_of(ledger), "a.parquet", [1])
    steps.clear()
    ledger.commit([file], {})
    assert steps[steps.index("link") - 1] == "sync" and "sync" in steps[steps.index("link") :]


def test_ticks_without_rows_that_are_removed_can_be_indexed_again(ledger: Ledger) -> None:
    ledger.commit([], {EMPTY: "[[1, 5, 1]]"})
    ledger.remove(TickRange(2, 3))
    assert ledger.present([TickRange(0, 9)]).tolist() == [1, 4, 5]
    assert Ledger(ledger.location, TABLE).present([TickRange(0, 9)]).tolist() == [1, 4, 5]


def test_a_table_that_is_made_anew_while_it_is_open_is_refused(ledger: Ledger) -> None:
    for tick in (1, 2, 3):
        add(ledger, f"{tick}.parquet", [tick])
    shutil.rmtree(folder_of(ledger))
    folder_of(ledger).mkdir()
    other = Ledger(ledger.location, TABLE)
    with pytest.raises(TableReplaced):
        ledger.refresh()
    assert ledger.id != other.id
    assert DeltaTable(str(ledger.location)).version() == 0


def test_a_table_that_is_gone_is_not_made_anew_by_those_who_had_it_open(ledger: Ledger) -> None:
    add(ledger, "1.parquet", [1])
    away = folder_of(ledger).rename(folder_of(ledger).with_name(f"{ledger.location.name}-away"))
    with pytest.raises(LakeUnreadable, match="it was removed"):
        ledger.refresh()
    assert not ledger.location.exists()
    away.rename(str(ledger.location))
    ledger.refresh()
    assert ledger.present([TickRange(0, 9)]).tolist() == [1]


class LedgerMachine(RuleBasedStateMachine):
    """Two writers of one table against a plain set of ticks."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="ticklake-ledger-"))
        self.ledgers = [Ledger(Location.of(self.directory), TABLE), Ledger(Location.of(self.directory), TABLE)]
        self.ticks: set[int] = set()

    @rule(who=st.integers(0, 1), ticks=st.sets(st.integers(0, 40), min_size=1), empty=st.sets(st.integers(0, 40)))
    def index(self, who: int, ticks: set[int], empty: set[int]) -> None:
        ledger = self.ledgers[who]
        ledger.refresh()
        there = ledger.present([TickRange(0, 99)]).tolist()
        fresh, bare = sorted(ticks.difference(there)), sorted((empty - ticks).difference(there))
        files = [write(self.directory, f"{uuid4().hex}.parquet", fresh)] if fresh else []
        ledger.commit(files, {EMPTY: packed(np.array(bare, np.int64))} if bare else {})
        self.ticks |= {*fresh, *bare}

    @rule(who=st.integers(0, 1), first=st.integers(0, 40), length=st.integers(0, 10))
    def remove(self, who: int, first: int, length: int) -> None:
        self.ledgers[who].remove(TickRange(first, first + length))
        self.ticks -= set(range(first, first + length + 1))

    @rule(who=st.integers(0, 1))
    def checkpoint(self, who: int) -> None:
        self.ledgers[who].refresh()
        self.ledgers[who].checkpoint()

    @rule(who=st.integers(0, 1))
    def reopen(self, who: int) -> None:
        self.ledgers[who] = Ledger(Location.of(self.directory), TABLE)

    @invariant()
    def both_know_every_tick(self) -> None:
        for ledger in self.ledgers:
            ledger.refresh()
            assert set(ledger.present([TickRange(0, 99)]).tolist()) == self.ticks

    def teardown(self) -> None:
        assert set(covered(Location.of(self.directory)).ticks.tolist()) == self.ticks
        shutil.rmtree(self.directory)


TestLedgerMachine = LedgerMachine.TestCase
TestLedgerMachine.settings = settings(max_examples=8, stateful_step_count=10, deadline=None)


def test_a_hint_of_a_checkpoint_that_is_gone_is_removed(tmp_path: Path) -> None:
    ledger = Ledger(Location.of(tmp_path), TABLE)
    ledger.commit([write(tmp_path, "a.parquet", [0, 1])], {})
    ledger.checkpoint()
    (checkpoint,) = (tmp_path / "_delta_log").glob("*.checkpoint.parquet")
    checkpoint.unlink()
    assert (tmp_path / "_delta_log" / "_last_checkpoint").exists()
    assert Ledger(Location.of(tmp_path), TABLE).present([TickRange(0, 9)]).tolist() == [0, 1]
    assert not (tmp_path / "_delta_log" / "_last_checkpoint").exists()
