"""Writes Parquet files of a table in order of the key, syncs them, and describes them for the Delta log."""

from __future__ import annotations

import json
import zlib
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from ticklake import faults
from ticklake.lake.delta.location import Location, TableFile
from ticklake.lake.errors import LakeUnwritable

# Small enough that a query for one tick reads little, large enough that the footer stays small.
ROW_GROUP_ROWS = 128 * 1024


class Layout(Protocol):
    """The schema and key of a table, for its files."""

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def key(self) -> tuple[str, ...]: ...


@dataclass(frozen=True)
class ParquetFile:
    """A finished file as the Delta log records it."""

    path: str
    size: int
    rows: int
    stats: str
    checksum: str


def is_damage(error: BaseException) -> bool:
    """Returns True if the content of a file is damaged, and False if the file cannot be reached."""
    return isinstance(error, pa.ArrowException) or (isinstance(error, OSError) and error.errno is None)


def opened(file: TableFile) -> pq.ParquetFile:
    """Opens a file for reading. Checks the checksum of every page that has one."""
    return pq.ParquetFile(file.source, page_checksum_verification=True)


def footer_of(file: TableFile) -> pq.FileMetaData:
    return pq.read_metadata(file.source)


def read_rows(file: TableFile) -> pa.Table:
    """Returns all rows of a small file, such as a checkpoint."""
    return pq.read_table(file.source)


def is_leaf(leaf: pq.ColumnSchema, name: str) -> bool:
    """Returns True if this leaf of a file is the whole column of that name, not a field of a struct."""
    return bool(leaf.name == leaf.path == name)


def conformed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Returns the rows with the columns, order and types of a schema. Missing columns become null."""
    for field in schema:
        if field.name not in rows.schema.names:
            rows = rows.append_column(field.name, pa.nulls(rows.num_rows, field.type))
    try:
        return rows.select(schema.names).cast(schema)
    except ValueError as error:
        raise pa.ArrowInvalid(str(error)) from error


class ParquetFileWriter:
    """Writes one file. It is created with the first rows, and removed if discarded."""

    def __init__(self, location: Location, name: str, table: Layout) -> None:
        self._file = location.file(name)
        self._table = table
        self._held: list[pa.RecordBatch] = []
        self._held_rows = 0
        self._writer: pq.ParquetWriter | None = None

    def append(self, rows: pa.RecordBatch) -> None:
        self._held.append(rows)
        self._held_rows += rows.num_rows
        if self._held_rows >= ROW_GROUP_ROWS:
            self._write(self._held_rows - self._held_rows % ROW_GROUP_ROWS)

    def close(self) -> ParquetFile | None:
        """Finishes the file, durable on return. Returns None if it has no rows."""
        if self._held_rows:
            self._write(self._held_rows)
        if self._writer is None:
            return None
        try:
            self._writer.close()
            faults.reach("lake.parquet.unsynced")
            return finish(self._file)
        except OSError as error:
            raise LakeUnwritable(directory=str(self._file.location), reason=error) from error

    def discard(self) -> None:
        if self._writer is not None:
            with suppress(Exception):  # rows that could not be written
                self._writer.close()
            self._file.remove()

    def _write(self, count: int) -> None:
        rows = pa.Table.from_batches(self._held, self._table.schema)
        try:
            faults.reach("lake.parquet.write")
            if self._writer is None:
                self._writer = pq.ParquetWriter(self._file.source, self._table.schema, **_layout(self._table))
            self._writer.write_table(rows.slice(0, count), row_group_size=ROW_GROUP_ROWS)
        except OSError as error:
            raise LakeUnwritable(directory=str(self._file.location), reason=error) from error
        rest = rows.slice(count).combine_chunks()
        self._held = rest.to_batches()
        self._held_rows = rest.num_rows


def _layout(table: Layout) -> dict[str, Any]:
    """Returns the encodings that measurements favour: differences for sorted integer keys, dictionaries otherwise."""
    packed = [name for name in table.key[1:] if pa.types.is_integer(table.schema.field(name).type)]
    return {
        "compression": "zstd",
        "use_dictionary": [name for name in table.schema.names if name not in packed],
        "column_encoding": dict.fromkeys(packed, "DELTA_BINARY_PACKED"),
        "write_page_index": True,
        "write_page_checksum": True,
    }


def finish(file: TableFile) -> ParquetFile:
    """Makes a written file durable and describes it."""
    file.sync()
    metadata = footer_of(file)
    stats = json.dumps(_statistics(metadata))
    return ParquetFile(file.path, file.facts().size, metadata.num_rows, stats, checksum(file))


def checksum(file: TableFile) -> str:
    """Returns a checksum of the whole file. Pages have checksums of their own, but the footer has none."""
    found = 0
    for block in file.blocks():
        found = zlib.crc32(block, found)
    return f"{found:08x}"


def checksum_of(data: bytes) -> str:
    return f"{zlib.crc32(data):08x}"


def _statistics(metadata: pq.FileMetaData) -> dict[str, Any]:
    """Returns row count, bounds and null counts with the names of the Delta protocol."""
    low: dict[str, int] = {}
    high: dict[str, int] = {}
    nulls: dict[str, int] = {}
    # The path `a.b` can be a field of a struct or a column with a dot in its name.
    leaves = [(place, metadata.schema.column(place)) for place in range(metadata.num_columns)]
    columns = [(place, leaf.path) for place, leaf in leaves if is_leaf(leaf, leaf.path)]
    for group in range(metadata.num_row_groups):
        for place, name in columns:
            found = metadata.row_group(group).column(place).statistics
            if found is None:
                continue
            nulls[name] = nulls.get(name, 0) + found.null_count
            if found.has_min_max and isinstance(found.min, int) and not isinstance(found.min, bool):
                low[name] = min(low.get(name, found.min), found.min)
                high[name] = max(high.get(name, found.max), found.max)
    return {"numRecords": metadata.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls}
