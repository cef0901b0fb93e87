"""The deep comparison compares values, whatever their type and however a file lays them out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from tests.crash.in_process import InProcess

from ticklake.completeness.completeness import Completeness
from ticklake.indexers.base import IndexerResources
from ticklake.indexers.batch import BatchIndexer
from ticklake.indexers.finished_run import FinishedRun
from ticklake.indexers.registry import INDEXERS
from ticklake.lake.delta import commits
from ticklake.lake.delta.log import live_files
from ticklake.lake.read.catalog import Catalog
from ticklake.lake.table import Table
from ticklake.lake.verify.deep import Deep, compare_deeply
from ticklake.ticks import Grid

KINDS = {
    "tags": pa.list_(pa.int32()),
    "large": pa.large_list(pa.string()),
    "pair": pa.list_(pa.int32(), 2),
    "place": pa.struct([("x", pa.int32()), ("on", pa.date32())]),
    "named": pa.map_(pa.string(), pa.list_(pa.float64())),
    "raw": pa.binary(),
    "word": pa.large_string(),
}


class Nested(BatchIndexer):
    """An indexer whose rows have lists, structs, maps and bytes that are no text, some of them null."""

    table = Table("nested", pa.schema({"tick_number": pa.int64(), **KINDS}), ("tick_number",))

    @staticmethod
    def rows(ticks: Any, world: Any) -> Any:
        numbers = ticks.column("tick_number").to_pylist()
        values = {
            "tick_number": numbers,
            "tags": [[n, 2] if n % 3 else None for n in numbers],
            "large": [[str(n)] for n in numbers],
            "pair": [[n, n] for n in numbers],
            "place": [{"x": n, "on": None} for n in numbers],
            "named": [[("a", [n / 3])] for n in numbers],
            "raw": [b"\xff" * n for n in numbers],
            "word": [f"w{n}" for n in numbers],
        }
        return pa.RecordBatch.from_pydict(values, schema=Nested.table.schema)


@pytest.fixture
def directory(maker: Any) -> Path:
    maker.metadata()
    maker.batches(2, ticks=5)
    spark: Any = InProcess()
    resources = IndexerResources(maker.storage, maker.lake, spark=lambda: spark)
    work = FinishedRun(resources, maker.run_id, [Nested]).start()
    while not work.wait(1.0):
        pass
    return maker.folder("nested")


def compared(maker: Any) -> Deep:
    spark: Any = InProcess()
    flusher = Nested("nested", IndexerResources(maker.storage, maker.lake, spark=lambda: spark)).flusher(maker.run_id)
    assert flusher is not None
    return compare_deeply(spark, flusher.work, list(maker.storage.every_batch(maker.run_id)), Grid(1))


def rewrite(directory: Path, rows: pa.Table) -> None:
    """As another engine does it: one file for all that is there."""
    delta = DeltaTable(directory)
    pq.write_table(rows, directory / "foreign.parquet", store_schema=False)
    size = (directory / "foreign.parquet").stat().st_size
    gone = [{"remove": {"path": file.path, "dataChange": True}} for file in live_files(delta, "tick_number")]
    new = {"path": "foreign.parquet", "partitionValues": {}, "size": size, "modificationTime": 1, "dataChange": True}
    actions = [{"commitInfo": {"operation": "OPTIMIZE"}}, *gone, {"add": new}]
    file = directory / "_delta_log" / commits.name_of(int(delta.version()) + 1)
    file.write_text("\n".join(map(json.dumps, actions)) + "\n")


def test_lists_structs_maps_and_bytes_are_compared(maker: Any, directory: Path) -> None:
    assert (compared(maker).ticks, compared(maker).flaws) == (10, 0)


def test_columns_of_a_file_may_be_in_any_order(maker: Any, directory: Path) -> None:
    rows = maker.rows("nested")
    rewrite(directory, rows.select(rows.schema.names[::-1]))
    found = compared(maker)
    assert (found.ticks, found.different, found.unreadable) == (10, [], {})


@pytest.mark.parametrize("name", KINDS)
def test_another_value_in_any_column_is_found(maker: Any, directory: Path, name: str) -> None:
    rows = maker.rows("nested")
    place = rows.schema.get_field_index(name)
    rewrite(directory, rows.set_column(place, rows.schema.field(place), rows.column(name).take([1, *range(1, 10)])))
    assert compared(maker).different == [(0, 0)]


def test_the_deep_comparison_refuses_a_file_for_the_same_reasons_as_a_flush(
    maker: Any, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where an indexer counts: a file that `observe` cannot count is in no table."""

    def observe(ticks: Any) -> Any:
        return {"ticks_seen": -1 if 7 in ticks.column("tick_number").to_pylist() else 1}

    monkeypatch.setattr(Nested, "observe", staticmethod(observe))
    monkeypatch.setitem(INDEXERS, "Nested", Nested)
    spark: Any = InProcess()
    bad = maker.storage.batches(maker.run_id).files[1].key
    flusher = Nested("nested", IndexerResources(maker.storage, maker.lake, spark=lambda: spark)).flusher(maker.run_id)
    assert flusher is not None
    said = dict(zip((0, 1), flusher.check(maker.storage.batches(maker.run_id).files), strict=True))[1]
    (table,) = Completeness(maker.run_id, maker.storage, Catalog(maker.lake_folder)).verify(spark=spark).tables
    assert table.deep is not None
    assert table.deep.unreadable == {bad: said}
