"""Batch files as a Spark data source: `spark.read.format("ticks")`.

Spark 4.2 passes the filters of a query to a Python data source, but not its columns. So the user names columns, with
the option `columns` or `.schema(…)`. Ticks are selected by options or by `WHERE`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import ArrayType, StructType

from ticklake.contracts import TickData
from ticklake.lake.errors import BadSourceOption
from ticklake.lake.slices import Piece, Slice, spread
from ticklake.storage import MAX_TICK, Storage, read_ticks, tick_schema
from ticklake.ticks import TickRange

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = "ticks"
TICK = ("tick_number",)
ALL_COLUMNS = tuple(field.name for field in TickData.DESCRIPTOR.fields)
# Bytes of batch files in one partition, and of ticks in one Arrow batch.
_PARTITION_BYTES = 16 << 20
_CHUNK_BYTES = 4 << 20


class Ticks(DataSource):
    """The batch files of one run, with one row for each tick."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        names = self.options.get("columns", "")
        columns = [name.strip() for name in names.split(",")] if names else ALL_COLUMNS
        try:
            schema = tick_schema(columns)
        except ValueError as error:
            raise BadSourceOption(option="columns", value=names, reason=error) from error
        wanted = {name.partition(".")[0] for name in columns}
        return from_arrow_schema(schema_of(schema, wanted))

    def reader(self, schema: StructType) -> DataSourceReader:
        return TicksReader(self.options, schema)


class TicksReader(DataSourceReader):
    """Reads the chosen ticks and fields of one run."""

    def __init__(self, options: MutableMapping[str, str], schema: StructType) -> None:
        place, _, run_id = options.get("path", "").rstrip("/").rpartition("/")
        if not run_id:
            raise BadSourceOption(option="path", value=run_id, reason="load() takes the folder of a run, STORAGE/RUN")
        self._storage, self._run_id = Storage(place or "."), run_id
        self._ticks = TickRange(_number(options, "tickStart", 0), _number(options, "tickEnd", MAX_TICK))
        self._partition_bytes = max(1, _number(options, "partitionBytes", _PARTITION_BYTES))
        self._schema = schema

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        for one in filters:
            ticks = ticks_of(one)
            if ticks is not None:
                self._ticks = self._ticks.within(ticks)
            if ticks is None or isinstance(one, In):
                yield one

    def partitions(self) -> list[InputPartition]:
        """Returns shares of equal bytes. Files without wanted ticks are recognised by name and not opened."""
        files = self._storage.every_batch(self._run_id)
        slices = [Slice(file, within) for file in files if (within := file.ticks.within(self._ticks))]
        tasks = -(-int(sum(one.weight() for one in slices)) // self._partition_bytes)
        return [Share(pieces) for pieces in spread(slices, max(1, tasks), step=1)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        wanted, fields = to_arrow_schema(self._schema, timezone="UTC"), fields_of(self._schema)
        for _, slice_, *_ in getattr(partition, "pieces", ()):
            found = read_ticks(
                self._storage, slice_.source, ticks=slice_.ticks, fields=fields, chunk_bytes=_CHUNK_BYTES
            )
            for batch in found:
                yield batch.select(wanted.names).cast(wanted)


@dataclass
class Share(InputPartition):
    """What one task reads."""

    pieces: list[Piece]


_PASSING_TICKS: dict[type[Filter], Callable[[Any], TickRange]] = {
    EqualTo: lambda value: TickRange(value, value),
    EqualNullSafe: lambda value: TickRange(value, value),
    GreaterThan: lambda value: TickRange(value + 1, MAX_TICK),
    GreaterThanOrEqual: lambda value: TickRange(value, MAX_TICK),
    LessThan: lambda value: TickRange(0, value - 1),
    LessThanOrEqual: lambda value: TickRange(0, value),
    In: lambda values: TickRange(min(values), max(values)),
}


def ticks_of(one: Filter) -> TickRange | None:
    """Returns a range with all ticks that pass the filter, or None if it does not restrict ticks."""
    if getattr(one, "attribute", None) != TICK:
        return None
    if isinstance(one, IsNotNull):
        return TickRange(0, MAX_TICK)
    value = getattr(one, "value", None)
    known = all(isinstance(part, int) for part in (value if isinstance(one, In) else (value,)))  # type: ignore[union-attr]
    return _PASSING_TICKS[type(one)](value) if known and value != () and type(one) in _PASSING_TICKS else None


def fields_of(schema: StructType) -> list[str]:
    """Returns the fields that a decoder must read for this schema, such as `cells` or `organisms.energy`."""
    fields = []
    for field in schema.fields:
        inner = field.dataType.elementType if isinstance(field.dataType, ArrayType) else field.dataType
        below = inner.fieldNames() if isinstance(inner, StructType) else []
        fields += [f"{field.name}.{name}" for name in below] or [field.name]
    return fields


def schema_of(schema: pa.Schema, names: Iterable[str]) -> pa.Schema:
    """Returns the schema with only these columns, in its order."""
    wanted = set(names)
    for name in [name for name in schema.names if name not in wanted]:
        schema = schema.remove(schema.get_field_index(name))
    return schema


def _number(options: MutableMapping[str, Any], name: str, default: int) -> int:
    text = str(options.get(name, default))
    if not text.isdecimal():
        raise BadSourceOption(option=name, value=text, reason="it must be an integer, 0 or more")
    return int(text)
