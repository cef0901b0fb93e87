"""A row with a null that the table's schema forbids fails its batch, and nothing of the batch is written."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from ticklake.errors import OtherTableSchema
from ticklake.indexers.events import QueuedBatch
from ticklake.lake.delta import Location
from ticklake.lake.delta.parquet import ParquetFile
from ticklake.lake.flush import task
from ticklake.lake.flush.task import Failed, Indexed, Result, Work
from ticklake.lake.ledger import Ledger
from ticklake.lake.slices import Piece, Slice
from ticklake.lake.table import Table
from ticklake.world import World

INNER = pa.field("x", pa.int64(), nullable=False)
VALUE = pa.field("value", pa.int64(), nullable=False)
MAP = pa.map_(pa.string(), VALUE)

FORBIDDEN = {
    "column": (pa.field("a", pa.int64(), nullable=False), [1, 2], None, "a"),
    "struct": (pa.field("a", pa.struct([INNER])), [{"x": 1}, None], {"x": None}, "a.x"),
    "list": (pa.field("a", pa.list_(INNER)), [[1], None], [1, None], "a[]"),
    "large list": (pa.field("a", pa.large_list(INNER)), [[1], None], [1, None], "a[]"),
    "list of fixed size": (pa.field("a", pa.list_(INNER, 2)), [[1, 2], None], [1, None], "a[]"),
    "map": (pa.field("a", MAP), [[("k", 1)], None], [("k", None)], "a[].value"),
    "map in a struct": (pa.field("a", pa.struct([("m", MAP)])), [{"m": [("k", 1)]}], {"m": [("k", None)]}, "a.m[]"),
    "struct in a map": (
        pa.field("a", pa.map_(pa.string(), pa.struct([INNER]))),
        [[("k", {"x": 1})], [("k", None)]],
        [("k", {"x": None})],
        "a[].value.x",
    ),
    "map in a large list": (pa.field("a", pa.large_list(MAP)), [[[("k", 1)]], [None]], [[("k", None)]], "a[][].value"),
}


def _written(column: pa.Field, values: list[object], directory: Path) -> list[Result]:
    """Writes one row a slice for real: row n is that of number n."""
    schema = pa.schema([pa.field("tick_number", pa.int64()), column])

    def read(work: Work, piece: Slice) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"tick_number": [piece.ticks.start]})

    def rows(ticks: pa.RecordBatch, world: World | None) -> pa.RecordBatch:
        (number,) = ticks.column(0).to_pylist()
        # A slice of a longer array, as a real indexer may return it.
        of_all = pa.array(values, column.type)
        return pa.RecordBatch.from_arrays([ticks.column(0), of_all[number : number + 1]], schema=schema)

    table = Table("own", schema, ("tick_number",))
    Ledger(Location.of(directory), table)
    work = Work("flush", None, None, (), table, Location.of(directory), rows, read=read)
    sources = [QueuedBatch(f"batch {number}", number, 1) for number in range(len(values))]
    return task.index(work, 0, [Piece(one.sequence, Slice(one, one.ticks)) for one in sources])


@pytest.mark.parametrize(("column", "good", "bad", "name"), FORBIDDEN.values(), ids=FORBIDDEN.keys())
def test_a_null_that_is_not_allowed_fails_its_own_slice_only(
    tmp_path: Path, column: pa.Field, good: list[object], bad: object, name: str
) -> None:
    values = [*good, bad, good[0]]
    results = _written(column, values, tmp_path)
    failed = [result for result in results if isinstance(result, Failed)]
    assert [result.number for result in failed] == [len(good)]
    assert f"a row has no {name}" in failed[0].error
    (file,) = [result for result in results if isinstance(result, ParquetFile)]
    ledger = Ledger(
        Location.of(tmp_path), Table("own", pa.schema([("tick_number", pa.int64()), column]), ("tick_number",))
    )
    ledger.commit([file], {})
    found = DeltaTable(tmp_path).to_pyarrow_table().sort_by("tick_number")
    assert found.column("a").to_pylist() == [*good, good[0]]


def test_rows_that_cannot_be_written_fail_their_own_slice_only(tmp_path: Path) -> None:
    """Parquet has no way to write a dictionary that has a null among its values. That shows only while writing."""
    column = pa.field("a", pa.dictionary(pa.int32(), pa.string()))
    schema = pa.schema([pa.field("tick_number", pa.int64()), column])

    def read(work: Work, piece: Slice) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"tick_number": [piece.ticks.start]})

    def rows(ticks: pa.RecordBatch, world: World | None) -> pa.RecordBatch:
        texts = pa.array(["a", None if ticks.column(0)[0].as_py() == 1 else "b"])
        own = pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), texts)
        return pa.RecordBatch.from_arrays([ticks.column(0), own], schema=schema)

    work = Work("flush", None, None, (), Table("own", schema, ("tick_number",)), Location.of(tmp_path), rows, read=read)
    sources = [QueuedBatch(f"batch {number}", number, 1) for number in range(3)]
    results = task.index(work, 0, [Piece(one.sequence, Slice(one, one.ticks)) for one in sources])
    assert [result.number for result in results if isinstance(result, Failed)] == [1]
    assert [result.number for result in results if isinstance(result, Indexed)] == [0, 2]
    assert {path.name for path in tmp_path.iterdir()} == {
        result.path for result in results if isinstance(result, ParquetFile)
    }


def test_a_table_that_somebody_made_stricter_is_refused(tmp_path: Path) -> None:
    """Rows are checked against the indexer's schema, so the table must not forbid what that allows."""
    stored = pa.schema([pa.field("tick_number", pa.int64()), pa.field("a", pa.int64(), nullable=False)])
    wanted = pa.schema([("tick_number", pa.int64()), ("a", pa.int64())])
    Ledger(Location.of(tmp_path), Table("own", stored, ("tick_number",)))
    with pytest.raises(OtherTableSchema, match="a long not null"):
        Ledger(Location.of(tmp_path), Table("own", wanted, ("tick_number",)))
    # The other way round nothing can go wrong; and keys are never null.
    open_to_all = functools.partial(Ledger, Location.of(tmp_path / "other"))
    open_to_all(Table("own", wanted, ("tick_number",)))
    open_to_all(Table("own", stored, ("tick_number",)))
