"""What a table may look like is checked where it is defined, and again where it is stored."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema

from ticklake.errors import BadTable, OtherTableSchema
from ticklake.lake.delta import Location
from ticklake.lake.delta.log import DeltaLog
from ticklake.lake.delta.parquet import ParquetFile, ParquetFileWriter
from ticklake.lake.empty import EMPTY, packed
from ticklake.lake.ledger import Ledger
from ticklake.lake.table import Table
from ticklake.lake.upkeep.compaction import BY_HAND, Compaction
from ticklake.lake.verify.coverage import covered
from ticklake.ticks import TickRange

LAST = 2**63 - 1


def table_of(kind: pa.DataType, *, in_key: bool = True) -> Table:
    schema = pa.schema([("tick_number", pa.int64()), ("value", kind)])
    return Table("values", schema, ("tick_number", "value") if in_key else ("tick_number",))


KEYS = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.bool_(), pa.string(), pa.large_string(), pa.binary()),
    *(pa.date32(), pa.timestamp("us", "UTC"), pa.decimal128(12, 2)),
]
NO_KEYS = [pa.float32(), pa.float64(), pa.list_(pa.int32()), pa.struct([("x", pa.int32())])]
NOWHERE = [
    *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.float16(), pa.time64("us"), pa.duration("s"), pa.null()),
    *(pa.list_(pa.uint32()), pa.struct([("x", pa.uint64())]), pa.timestamp("us"), pa.timestamp("ns", "UTC")),
    *(pa.timestamp("us", "Europe/Berlin"), pa.date64(), pa.decimal32(5, 2), pa.decimal64(10, 2), pa.decimal256(50, 2)),
    *(pa.decimal128(5, -2), pa.run_end_encoded(pa.int32(), pa.int32()), pa.map_(pa.string(), pa.date64())),
    *(pa.struct([]), pa.list_(pa.struct([])), pa.dictionary(pa.int32(), pa.uint8())),
]
LAYOUTS = [
    *(pa.string_view(), pa.binary_view(), pa.large_binary(), pa.binary(4), pa.dictionary(pa.int32(), pa.string())),
    *(pa.large_list(pa.int32()), pa.list_(pa.int32(), 2), pa.list_view(pa.int32()), pa.large_list_view(pa.string())),
    *(pa.map_(pa.large_string(), pa.large_list(pa.int32())), pa.struct([pa.field("x", pa.int32(), nullable=False)])),
    *(pa.list_(pa.field("elem", pa.large_string(), nullable=False)), pa.float32(), pa.decimal128(38, 10)),
    pa.map_(pa.field("k", pa.string(), nullable=False), pa.field("v", pa.int32())),
]


@pytest.mark.parametrize("kind", KEYS, ids=str)
def test_these_types_can_be_in_a_key_and_in_a_delta_table(kind: pa.DataType) -> None:
    Schema.from_arrow(table_of(kind).schema)


@pytest.mark.parametrize("kind", NO_KEYS, ids=str)
def test_these_types_can_be_in_a_table_but_not_in_its_key(kind: pa.DataType) -> None:
    Schema.from_arrow(table_of(kind, in_key=False).schema)
    with pytest.raises(BadTable, match=r"value is .* in a key"):
        table_of(kind)


@pytest.mark.parametrize("kind", NOWHERE, ids=str)
def test_types_that_delta_has_not_are_refused_in_one_line(kind: pa.DataType) -> None:
    with pytest.raises(BadTable, match=r"value is .* Delta tables do not support") as raised:
        table_of(kind, in_key=False)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("kind", LAYOUTS, ids=str)
def test_types_that_differ_from_one_of_delta_only_in_layout_can_be_in_a_table(
    tmp_path: Path, kind: pa.DataType
) -> None:
    Ledger(Location.of(tmp_path / "values"), table_of(kind, in_key=False))


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(BadTable, match="same name"):
        Table(
            "values", pa.schema([("tick_number", pa.int64()), ("a", pa.int32()), ("a", pa.int32())]), ("tick_number",)
        )


CHANGED = [
    (pa.int32(), pa.int64()),
    (pa.int32(), pa.string()),
    (pa.float32(), pa.float64()),
    (pa.date32(), pa.timestamp("us", "UTC")),
    (pa.decimal128(10, 2), pa.decimal128(12, 2)),
    (pa.list_(pa.int32()), pa.list_(pa.int64())),
]


@pytest.mark.parametrize(("stored", "wanted"), CHANGED, ids=str)
def test_a_table_whose_column_has_another_type_is_refused(
    tmp_path: Path, stored: pa.DataType, wanted: pa.DataType
) -> None:
    Ledger(Location.of(tmp_path / "values"), table_of(stored, in_key=False))
    with pytest.raises(OtherTableSchema, match="value"):
        Ledger(Location.of(tmp_path / "values"), table_of(wanted, in_key=False))


SAME = [pa.large_string(), pa.list_(pa.int32()), pa.timestamp("us", "UTC"), pa.date32(), pa.decimal128(9, 1)]


@pytest.mark.parametrize("kind", SAME, ids=str)
def test_a_table_is_opened_again_with_the_schema_that_made_it(tmp_path: Path, kind: pa.DataType) -> None:
    table = table_of(kind, in_key=False)
    assert Ledger(Location.of(tmp_path / "values"), table).id == Ledger(Location.of(tmp_path / "values"), table).id


def test_text_of_either_width_is_the_same_column(tmp_path: Path) -> None:
    """Delta has one type of text."""
    Ledger(Location.of(tmp_path / "values"), table_of(pa.string()))
    Ledger(Location.of(tmp_path / "values"), table_of(pa.large_string()))


def test_a_table_whose_columns_change_while_it_is_open_is_refused(tmp_path: Path) -> None:
    ledger = Ledger(Location.of(tmp_path / "values"), table_of(pa.int32()))
    (tmp_path / "values").rename(tmp_path / "away")
    DeltaLog(Location.of(tmp_path / "values"), "values", table_of(pa.int64()).schema, ("tick_number", "value"))
    with pytest.raises(OtherTableSchema):
        ledger.refresh()
    with pytest.raises(OtherTableSchema):
        ledger.refresh()


# The largest ticks


def write(ledger: Ledger, name: str, ticks: list[int]) -> ParquetFile:
    writer = ParquetFileWriter(ledger.location, name, ledger.table)
    writer.append(pa.RecordBatch.from_arrays([ticks, [0] * len(ticks)], schema=ledger.table.schema))
    file = writer.close()
    assert file is not None
    return file


def test_ticks_up_to_the_largest_there_are_can_be_added_told_merged_and_removed(tmp_path: Path) -> None:
    ledger = Ledger(Location.of(tmp_path / "values"), table_of(pa.int32()))
    ledger.commit([write(ledger, "a.parquet", [0, LAST - 1])], {})
    ledger.commit([write(ledger, "b.parquet", [LAST])], {EMPTY: packed(pa.array([5, LAST - 2]).to_numpy())})
    everything = [0, 5, LAST - 2, LAST - 1, LAST]
    for _ in range(2):
        assert ledger.present([TickRange(0, LAST)]).tolist() == everything
        assert ledger.present([TickRange(LAST, LAST)]).tolist() == [LAST]
        assert (
            Ledger(Location.of(tmp_path / "values"), ledger.table).present([TickRange(1, LAST)]).tolist()
            == everything[1:]
        )
        assert covered(ledger.location).ticks.tolist() == everything
        list(Compaction(ledger, BY_HAND).steps())
        ledger.checkpoint()
    assert len(ledger.files) == 1
    ledger.remove(TickRange(LAST - 2, LAST))
    assert ledger.present([TickRange(0, LAST)]).tolist() == [0, 5]
    assert DeltaTable(str(ledger.location)).to_pyarrow_table().column("tick_number").to_pylist() == [0]
