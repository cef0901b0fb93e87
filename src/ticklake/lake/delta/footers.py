"""Statistics of one column from the footers of Parquet files. The column is found by name.

A struct or a map is one column of a table but several columns of a file, so the positions in the two differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ticklake.lake.delta.location import Facts, TableFile
from ticklake.lake.delta.parquet import is_leaf, opened
from ticklake.ticks import TickRange

_INT64 = TickRange(-(2**63), 2**63 - 1)
_CACHED = 100_000


class RowGroup(NamedTuple):
    """A row group with the nulls and bounds of one column. None if the footer has no statistics."""

    number: int
    rows: int
    nulls: int | None
    bounds: TickRange | None

    @property
    def has_values(self) -> bool:
        return self.nulls != self.rows


class Contents(NamedTuple):
    """Rows, nulls and bounds of one column of a file. `bounds` is None if all values are null."""

    rows: int
    nulls: int
    bounds: TickRange | None


def row_groups(metadata: pq.FileMetaData, name: str) -> Iterator[RowGroup]:
    """Yields each row group. A missing column counts as all nulls. Raises ArrowInvalid if it does not hold integers."""
    leaf = _leaf(metadata, name)
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        if leaf is None:
            yield RowGroup(number, group.num_rows, group.num_rows, None)
            continue
        found = group.column(leaf).statistics
        nulls = found.null_count if found is not None and found.has_null_count else None
        # An unsigned value may not fit into int64. Then the bounds are unknown.
        known = found is not None and found.has_min_max and found.min in _INT64 and found.max in _INT64
        yield RowGroup(number, group.num_rows, nulls, TickRange(found.min, found.max) if known else None)


def column_of(file: pq.ParquetFile, group: RowGroup, name: str) -> pa.ChunkedArray:
    """Returns the column of one row group."""
    column = file.read_row_group(group.number, columns=[name]).column(name)
    if len(column) != group.rows:
        # The header of a page has no checksum, and Arrow does not check its row count.
        raise pa.ArrowInvalid(f"{len(column)} rows instead of {group.rows}")
    return column


def contents(file: TableFile, name: str) -> Contents:
    """Returns what a file holds, from its footer if possible. Results are cached, because table files never change."""
    return _contents(file, name, file.facts())


@lru_cache(_CACHED)
def _contents(file: TableFile, name: str, facts: Facts) -> Contents:  # noqa: ARG001
    with opened(file) as stored:
        found = [_contents_of_group(stored, group, name) for group in row_groups(stored.metadata, name)]
        rows = stored.metadata.num_rows
    bounds = [one.bounds for one in found if one.bounds is not None]
    nulls = sum(one.nulls for one in found)
    if not bounds:
        return Contents(rows, nulls, None)
    return Contents(rows, nulls, TickRange(min(one.start for one in bounds), max(one.end for one in bounds)))


def _contents_of_group(file: pq.ParquetFile, group: RowGroup, name: str) -> Contents:
    if not group.has_values or (group.nulls is not None and group.bounds is not None):
        return Contents(group.rows, group.nulls or 0, group.bounds)
    column = column_of(file, group, name)
    found = pc.min_max(column.cast(pa.int64())).as_py()
    bounds = None if found["min"] is None else TickRange(found["min"], found["max"])
    return Contents(group.rows, column.null_count, bounds)


def _leaf(metadata: pq.FileMetaData, name: str) -> int | None:
    """Returns the position of an integer column among the leaves, or None if it is missing."""
    for place in range(metadata.num_columns):
        leaf = metadata.schema.column(place)
        if is_leaf(leaf, name):
            if leaf.physical_type in ("INT32", "INT64") and leaf.logical_type.type in ("NONE", "INT"):
                return place
            raise pa.ArrowInvalid(f"its {name} is not an integer")
    if name in metadata.schema.to_arrow_schema().names:
        raise pa.ArrowInvalid(f"its {name} is not an integer")
    return None
