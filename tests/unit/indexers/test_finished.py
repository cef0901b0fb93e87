"""Replacing ticks of a finished run: no row is removed that no good file can bring back."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.crash.in_process import InProcess

from ticklake.completeness.completeness import Completeness
from ticklake.completeness.judging import Verdict
from ticklake.contracts import RunCompleted
from ticklake.errors import DamagedTableFile, DamageNotCovered, LakeUnwritable
from ticklake.indexers.base import IndexerResources
from ticklake.indexers.batch import BatchIndexer
from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.indexers.builtin.organism import OrganismIndexer
from ticklake.indexers.finished_run import FinishedRun, Progress
from ticklake.lake.delta.log import DeltaLog
from ticklake.lake.lake import Lake
from ticklake.lake.read.catalog import Catalog
from ticklake.lake.read.presence import Presence
from ticklake.lake.table import Table
from ticklake.lake.upkeep.maintenance import Failed, optimize_tables, vacuum_tables
from ticklake.ticks import TickRange
from ticklake.topics import Database


def index(
    maker: Any,
    ticks: TickRange | None = None,
    *,
    replace: bool = False,
    kind: type[BatchIndexer] = EnvironmentIndexer,
    database: Database | None = None,
) -> Progress:
    (progress,) = index_all(maker, [kind], ticks, replace=replace, database=database)
    return progress


def index_all(
    maker: Any,
    kinds: list[type[BatchIndexer]],
    ticks: TickRange | None = None,
    *,
    replace: bool = False,
    database: Database | None = None,
) -> list[Progress]:
    spark: Any = InProcess()
    resources = IndexerResources(maker.storage, maker.lake, database, spark=lambda: spark)
    work = FinishedRun(resources, maker.run_id, kinds, ticks).prepare()
    if replace:
        work.remove()
    work.start()
    while not work.wait(1.0):
        pass
    return work.progress()


@pytest.fixture
def file(maker: Any) -> Path:
    """The second of three files of ten ticks, which are all indexed."""
    maker.metadata()
    maker.batches(3, ticks=10)
    index(maker)
    (found,) = Path(maker.storage.url, maker.run_id).glob("batch_*10_*19*")
    return found


@pytest.mark.parametrize("ticks", [None, TickRange(5, 24)])
def test_ticks_whose_file_is_gone_stay(maker: Any, file: Path, ticks: TickRange | None) -> None:
    file.unlink()
    done = index(maker, ticks, replace=True)
    assert maker.keys() == sorted(maker.expected_keys(range(30)))
    assert done.kept == [TickRange(10, 19)]
    assert done.ticks == (20 if ticks is None else 10)


def test_ticks_whose_file_is_damaged_stay_and_the_file_is_named(maker: Any, file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-4])
    done = index(maker, replace=True)
    assert maker.keys() == sorted(maker.expected_keys(range(30)))
    assert (done.kept, done.ticks) == ([TickRange(10, 19)], 20)
    assert [Path(key).name for key in done.failed] == [file.name]


def test_ticks_that_good_files_have_are_replaced(maker: Any, file: Path) -> None:
    done = index(maker, replace=True)
    assert (done.ticks, done.kept, done.failed) == (30, [], {})
    assert maker.keys() == sorted(maker.expected_keys(range(30)))


class Particular(OrganismIndexer):
    """An indexer of the user's own that was changed and raises at one tick."""

    @staticmethod
    def rows(ticks: Any, world: Any) -> Any:
        if 15 in ticks.column("tick_number").to_pylist():
            raise KeyError("fifteen")
        return OrganismIndexer.rows(ticks, world)


def test_ticks_that_the_indexer_raises_at_stay(maker: Any, file: Path) -> None:
    index(maker, kind=OrganismIndexer)
    done = index(maker, replace=True, kind=Particular)
    assert (done.kept, done.ticks) == ([TickRange(10, 19)], 20)
    assert done.failed == {f"{maker.run_id}/{file.name}": "KeyError: 'fifteen'"}


class Watchful(EnvironmentIndexer):
    """An indexer of the user's own that makes the rows of every tick and cannot count one of them."""

    @staticmethod
    def observe(ticks: Any) -> Any:
        if 15 in ticks.column("tick_number").to_pylist():
            raise KeyError("fifteen")
        return {"seen": ticks.num_rows}


class Confused(EnvironmentIndexer):
    """One that counts something that is no number."""

    @staticmethod
    def observe(ticks: Any) -> Any:
        return {"seen": "many" if 15 in ticks.column("tick_number").to_pylist() else 1}


@pytest.mark.parametrize(("kind", "reason"), [(Watchful, "KeyError: 'fifteen'"), (Confused, "counted 'many'")])
def test_ticks_that_the_indexer_cannot_count_stay(
    maker: Any, file: Path, kind: type[BatchIndexer], reason: str
) -> None:
    done = index(maker, replace=True, kind=kind)
    assert maker.keys() == sorted(maker.expected_keys(range(30)))
    assert (done.kept, done.ticks) == ([TickRange(10, 19)], 20)
    assert reason in done.failed[f"{maker.run_id}/{file.name}"]


class Nested(BatchIndexer):
    """An indexer whose rows have lists, structs, maps and bytes that are no text."""

    table = Table(
        "nested",
        pa.schema(
            [
                ("tick_number", pa.int64()),
                ("tags", pa.list_(pa.int32())),
                ("place", pa.struct([("x", pa.int32())])),
                ("named", pa.map_(pa.string(), pa.int32())),
                ("raw", pa.binary()),
            ]
        ),
        ("tick_number",),
    )

    @staticmethod
    def rows(ticks: Any, world: Any) -> Any:
        numbers = ticks.column("tick_number").to_pylist()
        rows = [
            {"tick_number": n, "tags": [n, 2], "place": {"x": n}, "named": [("a", n)], "raw": b"\xff"} for n in numbers
        ]
        return pa.RecordBatch.from_pylist(rows, schema=Nested.table.schema)


def test_rows_with_lists_structs_maps_and_bytes_are_replaced(maker: Any, file: Path) -> None:
    index(maker, kind=Nested)
    done = index(maker, replace=True, kind=Nested)
    assert (done.ticks, done.kept, done.failed) == (30, [], {})
    assert maker.rows("nested").num_rows == 30


def test_ticks_of_a_file_that_is_off_the_sampling_grid_stay(maker: Any, file: Path) -> None:
    (Path(maker.storage.url) / maker.run_id / "metadata.pb.zst").unlink()
    maker.metadata(step=2)
    shutil.rmtree(maker.folder("metadata"))
    done = index(maker, replace=True)
    assert maker.keys() == sorted(maker.expected_keys(range(30)))
    assert (done.ticks, len(done.failed)) == (0, 3)


@pytest.mark.warns("has tick 1?5, but its run samples every 10 ticks, starting at 0")
@pytest.mark.parametrize("last", [5, 35])
def test_a_file_of_ticks_between_the_sampled_ones_fails_whole(maker: Any, last: int) -> None:
    maker.metadata(step=10)
    maker.batch(0, 40, step=10)
    assert index(maker).ticks == 5
    maker.batch(5, last, step=10)
    done = index(maker)
    assert len(done.failed) == 1
    assert maker.keys() == sorted(maker.expected_keys(range(0, 50, 10)))


@pytest.mark.warns("is refused")
def test_a_file_that_the_coordinator_calls_failed_is_indexed_again(maker: Any, file: Path) -> None:
    data = file.read_bytes()
    file.write_bytes(b"")
    with Database(maker.database_url) as database:
        index(maker, replace=True, database=database)
        index(maker, database=database)
        file.write_bytes(data)
        done = index(maker, replace=True, database=database)
    assert (done.ticks, done.kept, done.failed) == (30, [], {})
    assert maker.keys() == sorted(maker.expected_keys(range(30)))


@pytest.fixture
def damaged(maker: Any, file: Path) -> Path:
    """The one file of a table whose ticks 10 to 19 no batch file ever had, damaged."""
    file.unlink()
    index(maker, kind=OrganismIndexer)
    wanted = ["organism_data"]
    assert len(optimize_tables(Catalog(maker.lake_folder), maker.run_id, wanted, lambda *_: None, [])) == 1
    (merged,) = maker.folder("organism_data").glob("*compacted.parquet")
    merged.write_bytes(merged.read_bytes()[:-100])
    return Path(merged)


def test_a_damaged_table_file_with_a_hole_in_its_range_is_replaced(maker: Any, damaged: Path) -> None:
    with pytest.raises(DamagedTableFile, match="--ticks 0:29"):
        index(maker, TickRange(0, 9), replace=True, kind=OrganismIndexer)
    done = index(maker, TickRange(0, 29), replace=True, kind=OrganismIndexer)
    assert (done.ticks, done.kept, done.failed) == (20, [], {})
    assert index(maker, kind=OrganismIndexer).present == 20


def damage(maker: Any, ticks: TickRange, *, gone: bool = False) -> TickRange:
    """Damages the first file of a table that has some of these ticks, and returns all that it has."""
    ledger = maker.lake.ledger(maker.run_id, EnvironmentIndexer.table)
    first = min(ledger.files.overlapping(ticks), key=lambda file: file.ticks)
    path = Path(str(ledger.location)) / first.path
    data = path.read_bytes()
    path.unlink()
    if not gone:
        path.write_bytes(data[:-200] + bytes(200))
    return TickRange(*first.ticks)


@pytest.mark.warns("is damaged")
@pytest.mark.parametrize("gone", [False, True])
def test_a_damaged_table_file_stops_no_batch_beside_it_where_the_work_is_shared(maker: Any, gone: bool) -> None:
    maker.metadata()
    maker.batches(3, ticks=10)
    with Database(maker.database_url) as database:
        index(maker, database=database)
        lost = damage(maker, TickRange(0, 9), gone=gone)
        maker.batch(30, 39)
        done = index(maker, database=database)
        overlapping = [first for first in (0, 10, 20) if TickRange(first, first + 9).overlaps(lost)]
        assert done.ticks == 10
        assert all(f"_{first:010d}_" in key for first, key in zip(overlapping, sorted(done.failed), strict=True))
        replace = f"--table environment_data --ticks {lost.start}:{lost.end} --replace"
        assert all(replace in error for error in done.failed.values())
        index(maker, lost, replace=True, database=database)
        done = index(maker, database=database)
    assert (done.ticks, done.failed) == (0, {})
    assert maker.keys() == sorted(maker.expected_keys(range(40)))


@pytest.mark.warns("is damaged", "indexed again")
def test_what_the_table_lacks_beside_damaged_files_is_indexed_again(maker: Any) -> None:
    maker.metadata(step=10)
    with Database(maker.database_url) as database:
        for first in (0, 100, 200):
            maker.batch(first, first + 90, step=10)
            index(maker, database=database)
        maker.lake.ledger(maker.run_id, EnvironmentIndexer.table).remove(TickRange(250, 290))
        for first in (0, 100):
            damage(maker, TickRange(first, first + 90))
        done = index(maker, database=database)
    assert (done.ticks, len(done.failed)) == (5, 2)


def test_a_damaged_table_file_stays_if_a_batch_file_of_it_is_gone(maker: Any, damaged: Path) -> None:
    (gone,) = Path(maker.storage.url, maker.run_id).glob("batch_*20_*29*")
    gone.unlink()
    with pytest.raises(DamageNotCovered, match="ticks 0–29,"):
        index(maker, replace=True, kind=OrganismIndexer)
    ledger = maker.lake.ledger(maker.run_id, OrganismIndexer.table)
    assert [file.path for file in ledger.files.overlapping(TickRange(0, 29))] == [damaged.name]


def test_no_table_loses_a_row_if_another_one_cannot_be_replaced(maker: Any, damaged: Path) -> None:
    before = maker.keys()
    with pytest.raises(DamagedTableFile, match="--ticks 0:29"):
        index_all(maker, [EnvironmentIndexer, OrganismIndexer], TickRange(0, 9), replace=True)
    assert maker.keys() == before


def test_rows_that_were_removed_come_back_if_the_removal_from_another_table_fails(
    maker: Any, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index(maker, kind=OrganismIndexer)
    swap = DeltaLog.swap

    def fails_for_organisms(self: Any, *arguments: Any) -> None:
        if self.location.name == "organism_data":
            raise LakeUnwritable(directory=self.location, reason="the disk is full")
        swap(self, *arguments)

    monkeypatch.setattr(DeltaLog, "swap", fails_for_organisms)
    with pytest.raises(LakeUnwritable, match="the disk is full"):
        index_all(maker, [EnvironmentIndexer, OrganismIndexer], replace=True)
    assert maker.keys() == sorted(maker.expected_keys(range(30)))
    assert maker.rows("organism_data").num_rows == 30


@pytest.mark.parametrize("name", ["my lake", "Zürich", "100%", "a#b", "x[1]", "q?;&=+~"])
def test_a_lake_may_be_in_a_folder_of_any_name(maker: Any, tmp_path: Path, name: str) -> None:
    maker.lake = Lake(tmp_path / name)
    maker.metadata()
    maker.batches(2, ticks=10)
    maker.storage.write_completion(RunCompleted(simulation_run_id=maker.run_id, last_tick=19))
    with Database(maker.database_url) as database:
        for _ in range(2):
            index(maker, database=database)
    catalog = Catalog(maker.lake_folder)
    failures: list[Failed] = []
    optimize_tables(catalog, None, (), lambda *_: None, failures)
    vacuum_tables(catalog, None, (), 0, lambda *_: None, failures, force=True)
    assert failures == []
    assert Presence().ranges(catalog, maker.run_id, "environment_data", 1) == [TickRange(0, 19)]
    assert all(Path(str(file)).is_file() for file in catalog.files(maker.run_id, "environment_data"))
    spark: Any = InProcess()
    assert Completeness(maker.run_id, maker.storage, catalog).verify(spark=spark).verdict == Verdict.COMPLETE


def test_a_table_that_was_put_aside_in_its_place_is_none(maker: Any) -> None:
    maker.metadata()
    maker.batches(2, ticks=10)
    maker.storage.write_completion(RunCompleted(simulation_run_id=maker.run_id, last_tick=19))
    index(maker, TickRange(0, 9))
    table = maker.folder("environment_data")
    for name in ("environment_data.broken", "environment_data-old"):
        shutil.copytree(table, table.parent / name)
    shutil.rmtree(table)
    index(maker)
    catalog = Catalog(maker.lake_folder)
    assert catalog.tables(maker.run_id) == ["environment_data", "metadata"]
    assert Completeness(maker.run_id, maker.storage, catalog).verify().verdict == Verdict.COMPLETE


def test_ticks_that_an_overlapping_file_has_brought_are_skipped_and_told_apart_from_new_ones(maker: Any) -> None:
    maker.metadata()
    for first in (0, 5, 10):
        maker.batch(first, first + 9)
    done = index(maker)
    assert (done.ticks, done.present, done.total) == (20, 10, 30)
    done = index(maker)
    assert (done.ticks, done.present, done.total) == (0, 30, 30)
