"""The ledger: a table knows which ticks it has, and adds more only if nobody was faster."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from ticklake.errors import OtherTableSchema, UnknownTableFormat
from ticklake.lake import parquet
from ticklake.lake.ledger import Ledger
from ticklake.lake.log import CommitConflict
from ticklake.lake.parquet import ParquetFile, ParquetFileWriter
from ticklake.lake.table import Table
from ticklake.ticks import TickRange

SCHEMA = pa.schema([("tick_number", pa.int64()), ("cell_id", pa.int32())])
TABLE = Table("cells", SCHEMA, ("tick_number", "cell_id"))


def write(directory: Path, name: str, ticks: list[int], cells: int = 3) -> ParquetFile:
    writer = ParquetFileWriter(directory, name, TABLE)
    numbers = [tick for tick in ticks for _ in range(cells)]
    writer.append(pa.RecordBatch.from_arrays([numbers, list(range(cells)) * len(ticks)], schema=SCHEMA))
    file = writer.close()
    assert file is not None
    return file


def add(ledger: Ledger, name: str, ticks: list[int]) -> None:
    ledger.commit([write(ledger.directory, name, ticks)], {})


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path, TABLE)


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
    (ledger.directory / "a.parquet").unlink()
    assert ledger.present([TickRange(21, 1000)]).tolist() == []
    with pytest.raises(FileNotFoundError):
        ledger.present([TickRange(15, 1000)])


def test_the_second_of_two_writers_at_one_version_is_refused_and_sees_why(tmp_path: Path) -> None:
    first, second = Ledger(tmp_path, TABLE), Ledger(tmp_path, TABLE)
    add(first, "a.parquet", [1, 2])
    file = write(tmp_path, "b.parquet", [2, 3])
    with pytest.raises(CommitConflict):
        second.commit([file], {})
    second.refresh()
    assert second.present([TickRange(2, 3)]).tolist() == [2]
    assert DeltaTable(tmp_path).to_pyarrow_table().num_rows == 6


def test_two_processes_may_create_a_table_at_once(tmp_path: Path) -> None:
    ledgers = [Ledger(tmp_path, TABLE) for _ in range(3)]
    assert [one.version for one in ledgers] == [0, 0, 0]


def test_provenance_is_in_the_history(ledger: Ledger) -> None:
    ledger.commit([write(ledger.directory, "a.parquet", [1])], {"ticklake.sources": '[{"file": "run/batch_1_1.pb"}]'})
    assert DeltaTable(ledger.directory).history(1)[0]["ticklake.sources"] == '[{"file": "run/batch_1_1.pb"}]'


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.9], ids=["empty", "a third", "most"])
def test_a_newest_commit_torn_by_a_power_cut_is_set_aside_and_can_be_written_again(tmp_path: Path, keep: float) -> None:
    ledger = Ledger(tmp_path, TABLE)
    add(ledger, "a.parquet", [1])
    add(ledger, "b.parquet", [2])
    commit = tmp_path / "_delta_log" / f"{2:020d}.json"
    commit.write_bytes(commit.read_bytes()[: int(commit.stat().st_size * keep)])

    again = Ledger(tmp_path, TABLE)
    assert again.version == 1
    assert again.present([TickRange(0, 9)]).tolist() == [1]
    add(again, "c.parquet", [2])
    assert set(DeltaTable(tmp_path).to_pyarrow_table().column("tick_number").to_pylist()) == {1, 2}


def test_a_whole_newest_commit_stays(tmp_path: Path) -> None:
    add(Ledger(tmp_path, TABLE), "a.parquet", [1])
    assert Ledger(tmp_path, TABLE).version == 1


def test_statistics_let_readers_skip_files(ledger: Ledger) -> None:
    add(ledger, "a.parquet", [3, 5])
    actions = pa.table(DeltaTable(ledger.directory).get_add_actions(flatten=True)).to_pylist()[0]
    assert (actions["num_records"], actions["min.tick_number"], actions["max.tick_number"]) == (6, 3, 5)
    assert (actions["min.cell_id"], actions["max.cell_id"], actions["null_count.cell_id"]) == (0, 2, 0)


def test_a_table_of_an_unknown_format_is_refused(tmp_path: Path) -> None:
    DeltaTable.create(tmp_path, SCHEMA, configuration={"ticklake.format": "99"}, raise_if_key_not_exists=False)
    with pytest.raises(UnknownTableFormat, match="99"):
        Ledger(tmp_path, TABLE)


def test_a_table_with_other_columns_is_refused(tmp_path: Path) -> None:
    DeltaTable.create(tmp_path, pa.schema([("tick_number", pa.int64()), ("other", pa.int32())]))
    with pytest.raises(OtherTableSchema, match="other"):
        Ledger(tmp_path, TABLE)


def test_what_somebody_else_committed_is_synced_before_it_counts(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(ledger, "a.parquet", [1])
    later = Ledger(ledger.directory, TABLE)
    synced: list[str] = []
    monkeypatch.setattr("ticklake.lake.log.sync_file", lambda path: synced.append(path.name))
    later.sync()
    assert synced == [f"{number:020d}.json" for number in (0, 1)]
    later.sync()
    assert len(synced) == 2


@pytest.mark.parametrize("keep", [0, 100])
def test_a_torn_checkpoint_is_set_aside(ledger: Ledger, keep: int) -> None:
    add(ledger, "a.parquet", [1])
    add(ledger, "b.parquet", [2])
    DeltaTable(ledger.directory).create_checkpoint()
    (checkpoint,) = (ledger.directory / "_delta_log").glob("*.checkpoint.parquet")
    checkpoint.write_bytes(checkpoint.read_bytes()[:keep])
    assert Ledger(ledger.directory, TABLE).present([TickRange(0, 9)]).tolist() == [1, 2]


def test_a_table_made_anew_has_another_id(tmp_path: Path) -> None:
    first = Ledger(tmp_path / "one", TABLE)
    assert first.id == Ledger(tmp_path / "one", TABLE).id
    assert first.id != Ledger(tmp_path / "two", TABLE).id


def test_ticks_that_are_removed_can_be_indexed_again(ledger: Ledger) -> None:
    add(ledger, "a.parquet", [1, 2, 3, 4])
    ledger.commit([], {"ticklake.empty": "[[5, 7, 1]]"})
    ledger.remove(TickRange(2, 6))
    assert ledger.present([TickRange(0, 9)]).tolist() == [1, 7]
    assert Ledger(ledger.directory, TABLE).present([TickRange(0, 9)]).tolist() == [1, 7]
    add(ledger, "b.parquet", [2, 3, 5])
    assert ledger.present([TickRange(0, 9)]).tolist() == [1, 2, 3, 5, 7]
    assert DeltaTable(ledger.directory).to_pyarrow_table().num_rows == 12


@pytest.mark.parametrize("torn", [[2], [2, 3], [3]])
def test_several_commits_torn_at_once_are_set_aside_with_all_after_them(ledger: Ledger, torn: list[int]) -> None:
    for number in (1, 2, 3):
        add(ledger, f"{number}.parquet", [number])
    for version in torn:
        commit = ledger.directory / "_delta_log" / f"{version:020d}.json"
        commit.write_bytes(commit.read_bytes()[:100])
    again = Ledger(ledger.directory, TABLE)
    assert again.present([TickRange(0, 9)]).tolist() == list(range(1, torn[0]))
    add(again, "later.parquet", [2, 3])
    assert sorted(set(DeltaTable(ledger.directory).to_pyarrow_table().column(0).to_pylist())) == [1, 2, 3]
