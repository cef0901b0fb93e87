"""Indexing through the coordinator on Spark, and the deep comparison of what came of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from ticklake import RunCompleted
from ticklake.cli import cli
from ticklake.completeness.completeness import Completeness
from ticklake.completeness.judging import Verdict
from ticklake.completeness.verdicts import RunVerdict
from ticklake.config import load
from ticklake.coordination.coordinator import Coordinator
from ticklake.coordination.target import Target
from ticklake.indexers.base import IndexerResources
from ticklake.indexers.batch import BatchIndexer
from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.indexers.builtin.organism import OrganismIndexer
from ticklake.indexers.finished_run import FinishedRun
from ticklake.insights import gaps_of
from ticklake.lake.lake import Lake
from ticklake.lake.read.catalog import Catalog
from ticklake.lake.upkeep.maintenance import optimize_tables
from ticklake.node.node import Node
from ticklake.storage.codec import CellColumns, OrganismColumns, TickColumns, encode_ticks
from ticklake.ticks import TickRange
from ticklake.topics import Database

KINDS = [EnvironmentIndexer, OrganismIndexer]


@pytest.fixture
def index_all(maker: Any, resources: IndexerResources) -> Callable[[], dict[str, Any]]:
    """What `ticklake index --database` does."""

    def index() -> dict[str, Any]:
        work = FinishedRun(resources, maker.run_id, KINDS).start()
        while not work.wait(1):
            pass
        return {table.table: table for table in work.progress()}

    return index


@pytest.fixture
def verify(maker: Any, spark: SparkSession, database: Database) -> Callable[[], RunVerdict]:
    return lambda: Completeness(maker.run_id, maker.storage, Catalog(maker.lake_folder), database).verify(spark=spark)


def without_organisms(maker: Any, first: int, last: int) -> None:
    one = np.ones(2, np.int32)
    cells = CellColumns(np.array([1, 2]), one, one, one)
    ticks = [TickColumns(tick, tick, cells, OrganismColumns()) for tick in range(first, last + 1)]
    maker.storage.write_batch(maker.run_id, encode_ticks(maker.run_id, ticks))


def forget_empty_ticks(table: Path) -> None:
    """As Delta does with commits that are old enough: a new table with the same rows and no history."""
    rows = DeltaTable(table).to_pyarrow_table()
    shutil.rmtree(table)
    write_deltalake(table, rows)


def coordinator_of(maker: Any, database: Database, kind: type[BatchIndexer]) -> Coordinator:
    ledger = maker.lake.ledger(maker.run_id, kind.table)
    table = Target.at(ledger.id, ledger.location.url)
    return Coordinator(database.run(maker.run_id), kind.__name__, step=1, table=table)


def end(maker: Any, last_tick: int) -> None:
    maker.storage.write_completion(RunCompleted(simulation_run_id=maker.run_id, last_tick=last_tick))


def test_a_run_indexed_through_the_coordinator_is_complete_also_where_ticks_have_no_rows(
    maker: Any, index_all: Callable[[], dict[str, Any]], verify: Callable[[], RunVerdict], database: Database
):
    maker.metadata()
    maker.batches(3)
    without_organisms(maker, 300, 349)
    end(maker, 349)
    index_all()
    run = verify()
    assert run.verdict is Verdict.COMPLETE
    assert {table.table: (table.rows, table.deep.ticks, table.deep.flaws) for table in run.tables if table.deep} == {
        "environment_data": (3100, 350, 0),
        "organism_data": (300, 350, 0),
    }
    forget_empty_ticks(maker.folder("organism_data"))
    assert verify().verdict is Verdict.COMPLETE, "the files themselves tell which ticks have no rows"


def test_a_run_stays_complete_to_the_last_row_when_its_tables_are_optimized(
    maker: Any, index_all: Callable[[], dict[str, Any]], verify: Callable[[], RunVerdict]
):
    maker.metadata()
    maker.batches(2)
    index_all()
    maker.batch(200, 299)
    without_organisms(maker, 300, 349)
    end(maker, 349)
    index_all()
    done = optimize_tables(Catalog(maker.lake_folder), maker.run_id, [], lambda *_: None, [])
    assert [(one.table, one.files, one.files_removed > 1) for one in done] == [
        ("environment_data", 1, True),
        ("organism_data", 1, True),
    ]
    run = verify()
    assert run.verdict is Verdict.COMPLETE
    assert {table.table: (table.rows, table.deep.ticks, table.deep.flaws) for table in run.tables if table.deep} == {
        "environment_data": (3100, 350, 0),
        "organism_data": (300, 350, 0),
    }
    assert {table.ticks for table in index_all().values()} == {0}


def test_indexing_a_run_again_changes_nothing_also_where_ticks_have_no_rows(
    maker: Any, index_all: Callable[[], dict[str, Any]]
):
    maker.metadata()
    maker.batches(3)
    without_organisms(maker, 300, 349)
    index_all()
    done = index_all()
    assert {name: (table.ticks, table.present) for name, table in done.items()} == {
        "environment_data": (0, 350),
        "organism_data": (0, 350),
    }
    versions = [DeltaTable(maker.folder(name)).version() for name in done]
    index_all()
    assert [DeltaTable(maker.folder(name)).version() for name in done] == versions


def test_a_table_that_was_removed_is_indexed_again_whatever_the_coordinator_says(
    maker: Any, index_all: Callable[[], dict[str, Any]], verify: Callable[[], RunVerdict]
):
    maker.metadata()
    maker.batches(2)
    end(maker, 199)
    index_all()
    shutil.rmtree(maker.folder("organism_data"))
    done = index_all()
    assert (done["organism_data"].ticks, done["environment_data"].ticks) == (200, 0)
    assert verify().verdict is Verdict.COMPLETE


@pytest.mark.warns("Batch .* failed")
def test_a_damaged_file_fails_alone_and_the_verdict_names_it(
    maker: Any, index_all: Callable[[], dict[str, Any]], verify: Callable[[], RunVerdict], database: Database
):
    maker.metadata()
    bad = maker.batches(3)[1].storage_key
    path = Path(maker.storage.url) / bad
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    end(maker, 299)
    index_all()
    run = verify()
    assert run.verdict is Verdict.INCOMPLETE
    for table in run.tables:
        assert table.coverage.waiting == [TickRange(100, 199)]
        assert table.deep is not None and list(table.deep.unreadable) == [bad]
        assert [batch.name for batch in table.failed] == [bad.rpartition("/")[2]]
    assert [gap.ticks for gap in coordinator_of(maker, database, OrganismIndexer).gaps()] == [TickRange(100, 199)]
    places = ("--storage", maker.storage.url, "--lake", str(maker.lake.root), "--database", maker.database_url)
    for command in ("verify", "gaps"):
        said = CliRunner().invoke(cli, [command, maker.run_id, *places]).stdout
        assert said.count(f"failed: {path.name}: ") == len(run.tables)


def test_a_changed_row_is_found_by_the_deep_comparison(
    maker: Any, index_all: Callable[[], dict[str, Any]], verify: Callable[[], RunVerdict]
):
    maker.metadata()
    maker.batches(2)
    end(maker, 199)
    index_all()
    directory = maker.folder("organism_data")
    rows = DeltaTable(directory).to_pyarrow_table().sort_by("tick_number")
    energy = np.where(rows["tick_number"].to_numpy() == 150, 7777, rows["energy"].to_numpy()).astype(np.int32)
    changed = rows.set_column(rows.schema.get_field_index("energy"), rows.schema.field("energy"), pa.array(energy))
    write_deltalake(directory, changed, mode="overwrite")
    by_table = {table.table: table for table in verify().tables}
    assert by_table["environment_data"].verdict is Verdict.COMPLETE
    assert by_table["organism_data"].verdict is Verdict.INCOMPLETE
    assert by_table["organism_data"].deep is not None
    assert by_table["organism_data"].deep.different == [TickRange(150, 150)]
    assert by_table["organism_data"].duplicated == 0


# One bad name among good files


HOSTILE = "batch_0000000000_9223372036854775807.pb.zst"


def copy_of(maker: Any, name: str, source: str) -> None:
    folder = Path(maker.storage.url) / maker.run_id
    shutil.copy(folder / source.rpartition("/")[2], folder / name)


@pytest.mark.warns("Batch .* failed")
def test_a_file_that_promises_every_tick_keeps_no_good_file_from_its_table(
    maker: Any, index_all: Callable[[], dict[str, Any]]
):
    maker.metadata()
    good = maker.batches(5, ticks=10)
    copy_of(maker, HOSTILE, good[0].storage_key)
    done = index_all()
    assert {tuple(table.failed) for table in done.values()} == {(f"{maker.run_id}/{HOSTILE}",)}
    assert maker.keys("organism_data", "organism_id") == [(tick, 1) for tick in range(50)]
    again = index_all()
    assert {tuple(table.failed) for table in again.values()} == {(f"{maker.run_id}/{HOSTILE}",)}, "it is still bad"
    (Path(maker.storage.url) / maker.run_id / HOSTILE).unlink()
    assert {len(table.failed) for table in index_all().values()} == {0}, "there is no such file any more"


@pytest.mark.warns("it lacks ticks that its name promises")
def test_a_file_with_holes_keeps_no_file_with_their_ticks_from_its_table(
    maker: Any, index_all: Callable[[], dict[str, Any]]
):
    """Two writers that drained one queue in turns: the ticks of one file lie within the name of the other."""
    maker.metadata()
    ticks = [maker._tick(number, 10) for number in (*range(10), *range(20, 30))]
    maker.storage.write_batch(maker.run_id, encode_ticks(maker.run_id, ticks))
    index_all()
    maker.batch(10, 19)
    index_all()
    assert maker.keys("organism_data", "organism_id") == [(tick, 1) for tick in range(30)]


# One table each


def test_two_lakes_on_one_database_each_get_the_whole_run(maker: Any, resources: IndexerResources):
    maker.metadata()
    maker.batches(10, ticks=10)
    lakes = [maker.lake, Lake(maker.lake_folder.with_name("lake2"))]
    works = [FinishedRun(replace(resources, lake=lake), maker.run_id, [OrganismIndexer]).start() for lake in lakes]
    for work in works:
        while not work.wait(1):
            pass
    for lake in lakes:
        table = DeltaTable(str(lake.location(maker.run_id, "organism_data"))).to_pyarrow_table()
        assert sorted(table["tick_number"].to_pylist()) == list(range(100))


def test_a_missing_tail_is_a_gap(maker: Any, index_all: Callable[[], dict[str, Any]], database: Database):
    maker.metadata()
    maker.batches(2)
    end(maker, 299)
    index_all()
    found = {one.indexer_class: one.pending for one in gaps_of([database], maker.run_id)}
    assert found == {"EnvironmentIndexer": 1, "OrganismIndexer": 1}


CONFIGURATION = """
resources {
  tick-storage { class = Storage, options { path = "%s" } }
  lake { class = Lake, options { path = "%s" } }
  index-database { class = Database, options { url = "%s" } }
}
services {
  environment-indexer {
    resources { storage = "storage-read:tick-storage", coordinator = "db-coordinator:index-database" }
    options { run_id = "%s", until_caught_up = true, gap_warning_timeout_ms = 1 }
  }
}
"""


@pytest.mark.warns("Permanent gap in EnvironmentIndexer .*: 100–199")
def test_an_indexer_of_a_node_that_is_bound_to_a_coordinator_shares_its_run(
    maker: Any, database: Database, index_metadata: Callable[[], None], tmp_path: Path
):
    maker.metadata()
    maker.batch(0, 99)
    maker.batch(200, 299)
    index_metadata()
    file = tmp_path / "node.conf"
    places = (maker.storage.url, maker.lake_folder, maker.database_url, maker.run_id)
    file.write_text(CONFIGURATION % places)
    node = Node(load(file))
    service = node.services["environment-indexer"]
    service.start()
    assert service.join(120) and service.error is None
    coordinator = coordinator_of(maker, database, EnvironmentIndexer)
    assert [batch.status for batch in coordinator.batches()] == ["completed", "completed"]
    assert [gap.ticks for gap in coordinator.gaps()] == [TickRange(100, 199)]
    assert maker.rows().num_rows == 2000
    assert service.monitor.snapshot()["batches_claimed"] == 2
