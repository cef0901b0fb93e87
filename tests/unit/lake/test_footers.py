"""A column of a file is found by its name, whatever columns come before it, and whoever wrote the file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from ticklake.errors import DamagedTableFile, TableUnreadable
from ticklake.lake.delta import Location, commits
from ticklake.lake.delta.parquet import ParquetFileWriter
from ticklake.lake.ledger import Ledger
from ticklake.lake.read import Catalog, Frames, Presence
from ticklake.lake.table import Table
from ticklake.lake.upkeep.compaction import BY_HAND, Compaction
from ticklake.lake.verify.coverage import covered
from ticklake.ticks import TickRange

POINT = pa.struct([("x", pa.int64()), ("y", pa.int64())])
BEFORE: dict[str, tuple[pa.DataType, Any]] = {
    "struct": (POINT, lambda value: {"x": value, "y": value}),
    "map": (pa.map_(pa.int64(), pa.int64()), lambda value: [(value, value)]),
    "list of structs": (pa.list_(POINT), lambda value: [{"x": value, "y": value}]),
}


def table_with(before: pa.DataType) -> Table:
    schema = pa.schema([("before", before), ("tick_number", pa.int64()), ("other", pa.int64())])
    return Table("own", schema, ("tick_number",))


def add(ledger: Ledger, ticks: Sequence[int], values: Sequence[Any]) -> None:
    rows = pa.RecordBatch.from_arrays([values, list(ticks), [0] * len(ticks)], schema=ledger.table.schema)
    writer = ParquetFileWriter(ledger.location, f"{uuid4().hex}.parquet", ledger.table)
    writer.append(rows)
    file = writer.close()
    assert file is not None
    ledger.commit([file], {})


def foreign(ledger: Ledger, rows: pa.Table, stats: dict[str, Any] | None = None, **layout: Any) -> Path:
    """A file that another engine adds, with these statistics or with none."""
    path = Path(str(ledger.location)) / f"foreign-{uuid4().hex}.parquet"
    pq.write_table(rows, path, **layout)
    new = {
        "path": path.name,
        "partitionValues": {},
        "size": path.stat().st_size,
        "modificationTime": 1,
        "dataChange": True,
    }
    told = {} if stats is None else {"stats": json.dumps(stats)}
    actions = [{"commitInfo": {"operation": "WRITE"}}, {"add": new | told}]
    ledger.refresh()
    file = Path(str(ledger.location)) / "_delta_log" / commits.name_of(ledger.version + 1)
    file.write_text("\n".join(map(json.dumps, actions)) + "\n")
    ledger.refresh()
    return path


@pytest.mark.parametrize(("before", "value"), BEFORE.values(), ids=BEFORE.keys())
def test_ticks_are_found_behind_a_nested_column(tmp_path: Path, before: pa.DataType, value: Any) -> None:
    """One value in all rows of the nested column: taken for the bounds of the tick, it is the only tick."""
    ledger = Ledger(Location.of(tmp_path / "run" / "own"), table_with(before))
    add(ledger, [0, 1, 2, 3, 4, 6, 7], [value(5)] * 7)
    assert ledger.present([TickRange(0, 9)]).tolist() == [0, 1, 2, 3, 4, 6, 7]
    assert ledger.present([TickRange(5, 5)]).tolist() == []
    assert covered(ledger.location).ticks.tolist() == [0, 1, 2, 3, 4, 6, 7]
    far = Ledger(Location.of(tmp_path / "run" / "far"), table_with(before))
    add(far, [0, 1, 2, 3], [value(1000), value(1001)] * 2)
    assert far.present([TickRange(0, 9)]).tolist() == [0, 1, 2, 3]
    found = Presence().ranges(Catalog(tmp_path), "run", "far", 1)
    assert found == [TickRange(0, 3)]


@pytest.mark.parametrize(("before", "value"), BEFORE.values(), ids=BEFORE.keys())
def test_rows_are_merged_and_removed_behind_a_nested_column(tmp_path: Path, before: pa.DataType, value: Any) -> None:
    ledger = Ledger(Location.of(tmp_path), table_with(before))
    for start in (0, 10):
        add(ledger, range(start, start + 10), [value(5)] * 10)
    wanted = DeltaTable(tmp_path).to_pyarrow_table().sort_by("tick_number").to_pylist()
    assert sum(step.files_removed for step in Compaction(ledger, BY_HAND).steps()) == 2
    assert DeltaTable(tmp_path).to_pyarrow_table().to_pylist() == wanted
    ledger.remove(TickRange(3, 4))
    assert [row["tick_number"] for row in DeltaTable(tmp_path).to_pyarrow_table().to_pylist()] == [
        *(0, 1, 2),
        *range(5, 20),
    ]


def test_row_groups_are_chosen_by_their_ticks_behind_a_nested_column(tmp_path: Path) -> None:
    ledger = Ledger(Location.of(tmp_path / "run" / "own"), table_with(POINT))
    add(ledger, range(10), [{"x": 500, "y": 500}] * 10)
    frames = Frames(Catalog(tmp_path))
    found = frames.reading(
        "run", "own", lambda table: list(table.scan(["tick_number"], TickRange(0, 9), lambda ticks: 3 in ticks))
    )
    assert [tick for batch in found for tick in batch.column(0).to_pylist()] == list(range(10))


def test_a_column_is_not_taken_for_a_field_of_the_same_path(tmp_path: Path) -> None:
    """A column may have a dot in its name."""
    schema = pa.schema([("a", pa.struct([("b", pa.int64())])), ("a.b", pa.int64())])
    table = Table("own", schema, ("a.b",))
    ledger = Ledger(Location.of(tmp_path), table)
    writer = ParquetFileWriter(Location.of(tmp_path), "a.parquet", table)
    writer.append(pa.RecordBatch.from_arrays([[{"b": 700}, {"b": 700}], [1, 2]], schema=schema))
    file = writer.close()
    assert file is not None
    ledger.commit([file], {})
    assert json.loads(file.stats)["maxValues"] == {"a.b": 2}
    assert ledger.present([TickRange(0, 9)]).tolist() == [1, 2]


FLAT = Table("own", pa.schema([("tick_number", pa.int64()), ("other", pa.int64())]), ("tick_number",))


@pytest.fixture
def flat(tmp_path: Path) -> Ledger:
    """Ticks 0 to 3 in a file of ours."""
    ledger = Ledger(Location.of(tmp_path / "run" / "own"), FLAT)
    writer = ParquetFileWriter(ledger.location, "own.parquet", FLAT)
    writer.append(pa.RecordBatch.from_arrays([[0, 1, 2, 3], [0] * 4], schema=FLAT.schema))
    file = writer.close()
    assert file is not None
    ledger.commit([file], {})
    return ledger


def test_a_file_without_the_column_has_no_ticks_and_indexing_goes_on(flat: Ledger) -> None:
    foreign(flat, pa.table({"other": [7, 8]}))
    catalog = Catalog(Path(str(flat.location)).parents[1])
    for ledger in (flat, Ledger(flat.location, FLAT)):
        assert ledger.present([TickRange(0, 9)]).tolist() == [0, 1, 2, 3]
    assert Presence().ranges(catalog, "run", "own", 1) == [TickRange(0, 3)]
    facts = catalog.facts("run", "own")
    assert (facts.rows, facts.ticks) == (6, TickRange(0, 3))
    with pytest.raises(TableUnreadable, match="rows without tick_number"):
        covered(flat.location)
    assert [*Compaction(flat, BY_HAND).steps()] == []
    flat.remove(TickRange(0, 3))
    assert DeltaTable(str(flat.location)).to_pyarrow_table()["other"].to_pylist() == [7, 8]


@pytest.mark.parametrize(
    "ticks",
    [pa.array(["5"]), pa.array([5.0]), pa.array([{"x": 5}]), pa.array([[5]]), pa.array([5], pa.timestamp("us"))],
    ids=["text", "float", "struct", "list", "timestamp"],
)
def test_a_column_that_is_no_integer_is_damage(flat: Ledger, ticks: pa.Array) -> None:
    path = foreign(flat, pa.table({"tick_number": ticks, "other": [7]}))
    with pytest.raises(DamagedTableFile, match=path.name):
        flat.present([TickRange(0, 9)])
    catalog = Catalog(Path(str(flat.location)).parents[1])
    with pytest.raises(TableUnreadable, match=path.name):
        Presence().ranges(catalog, "run", "own", 1)
    with pytest.raises(TableUnreadable, match=path.name):
        covered(flat.location)
    facts = catalog.facts("run", "own")
    assert (facts.rows, facts.ticks, facts.files) == (None, None, 2)


def test_a_narrower_integer_is_a_tick(flat: Ledger) -> None:
    foreign(flat, pa.table({"tick_number": pa.array([5, 6], pa.int32()), "other": [7, 8]}))
    assert flat.present([TickRange(0, 9)]).tolist() == [0, 1, 2, 3, 5, 6]


def test_part_of_a_file_is_removed_whatever_columns_it_lacks_and_in_whatever_order(flat: Ledger) -> None:
    """A column that a file lacks is null in all of its rows."""
    foreign(flat, pa.table({"tick_number": [5, 6]}))
    foreign(flat, pa.table({"other": [7, 8], "tick_number": [7, 8]}))
    flat.remove(TickRange(6, 7))
    rows = DeltaTable(str(flat.location)).to_pyarrow_table().sort_by("tick_number").to_pylist()
    assert [tuple(row.values()) for row in rows] == [(0, 0), (1, 0), (2, 0), (3, 0), (5, None), (8, 8)]
