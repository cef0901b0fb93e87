"""A lake of an older version: indexing goes on, and what it has is verified to the last row and compacted."""

from __future__ import annotations

import shutil
from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import SparkSession
from tests.crash.original import RUN, file_of, metadata
from tests.unit.storage.test_eras import some_ticks

from ticklake.completeness.completeness import Completeness
from ticklake.indexers.base import IndexerResources
from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.indexers.builtin.organism import OrganismIndexer
from ticklake.indexers.finished_run import FinishedRun
from ticklake.lake.lake import Lake
from ticklake.lake.read.catalog import Catalog
from ticklake.lake.upkeep.maintenance import optimize_tables
from ticklake.storage import Storage

OLD = Path(__file__).parents[1] / "data" / "tables-of-schema-1"
KINDS = [EnvironmentIndexer, OrganismIndexer]


def test_indexing_goes_on_in_a_table_of_an_older_version(spark: SparkSession, tmp_path: Path) -> None:
    lake, files = shutil.copytree(OLD, tmp_path / "lake"), tmp_path / "storage" / RUN
    files.mkdir(parents=True)
    ticks = some_ticks(era="A")
    (files / "metadata.pb").write_bytes(metadata("A"))
    (files / "batch_0000000000_0000000005.pb").write_bytes(file_of("A", ticks[:6]))
    storage = Storage(tmp_path / "storage")

    def flaws() -> dict[str, int | None]:
        found = Completeness(RUN, storage, Catalog(lake), None).verify(spark=spark)
        return {table.table: table.deep.flaws for table in found.tables if table.deep}

    assert flaws() == {"environment_data": 0, "organism_data": 0}, "before it grows"
    (files / "batch_0000000006_0000000011.pb").write_bytes(file_of("A", ticks[6:]))
    work = FinishedRun(IndexerResources(storage, Lake(lake), spark=lambda: spark), RUN, KINDS).start()
    while not work.wait(60):
        pass
    assert {(one.table, one.ticks, one.present) for one in work.progress()} == {
        ("environment_data", 6, 6),
        ("organism_data", 6, 6),
    }
    assert flaws() == {"environment_data": 0, "organism_data": 0}, "old rows and new ones"
    optimize_tables(Catalog(lake), RUN, [], lambda *_: None, [])
    assert flaws() == {"environment_data": 0, "organism_data": 0}, "after a compaction"
    rows = DeltaTable(lake / RUN / "environment_data").to_pyarrow_table()
    found = zip(rows["tick_number"].to_pylist(), rows["type"].to_pylist(), strict=True)
    assert {(tick > 5, kind is None) for tick, kind in found} == {(False, True), (True, False)}
