"""Finds the ticks and duplicate keys of a table. Reads its Parquet files, not only its log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ticklake.lake.delta import (
    DeltaError,
    DeltaTable,
    Location,
    TableFile,
    TableNotFoundError,
    check_readable,
    contents_of,
    dataset_of,
    files_of,
    is_counted_by,
    named_key,
    one_line,
    opened_table,
    recorded,
)
from ticklake.lake.empty import Ticks, joined, ticks_of
from ticklake.lake.errors import TableUnreadable
from ticklake.lake.ledger import ticks_in
from ticklake.ticks import TickRange

TICK = "tick_number"
# Includes negative ticks, which no run has: they are reported as unexpected.
_EVERY_TICK = TickRange(np.iinfo(np.int64).min, np.iinfo(np.int64).max)
# The number of rows that are searched for duplicate keys at a time.
_ROWS_AT_ONCE = 4 << 20
_SHOWN = 100


@dataclass(frozen=True)
class Covered:
    """The ticks of a table: those with rows, and those that its commits record as empty."""

    with_rows: Ticks
    without_rows: Ticks

    @property
    def ticks(self) -> Ticks:
        return joined([self.with_rows, self.without_rows])


@dataclass(frozen=True)
class RowCounts:
    """The number of rows of each tick, ordered by tick, and the first duplicate keys."""

    ticks: Ticks
    rows: Ticks
    duplicates: list[dict[str, int]]
    duplicated: int
    version: int | None = None
    """The version of the table that was read; None if there is none."""


def key_of(location: Location) -> tuple[str, ...]:
    """Returns the key that the properties of a table name.

    Without such a property, the key is `tick_number` if the table has that column, else empty.
    """
    delta = _open(location)
    return (TICK,) if delta is None else named_key(delta, location) or ((TICK,) if is_counted_by(delta, TICK) else ())


def covered(location: Location, version: int | None = None) -> Covered:
    """Returns the ticks of a table; default: in its newest version. Reads a row group only if it must."""
    delta, key = _open(location, version), key_of(location)
    if delta is None or not key:
        return Covered(np.empty(0, np.int64), np.empty(0, np.int64))
    if any(file is not None and file.nulls for file in contents_of(delta, location, key[0])):
        raise TableUnreadable(table=location, reason=f"it has rows without {key[0]}")
    found = joined(part for file in files_of(delta, location) for part in _ticks(file, key[0]))
    records = recorded(location, str(delta.metadata().id), int(delta.version()))
    return Covered(found, records.empty.all())


def table_id(location: Location) -> str | None:
    """Returns the id of the table, or None if it does not exist."""
    delta = _open(location)
    return None if delta is None else str(delta.metadata().id)


def properties_of(location: Location) -> Mapping[str, str]:
    """Returns the properties of a table; none if it does not exist."""
    delta = _open(location)
    return {} if delta is None else {name: value or "" for name, value in delta.metadata().configuration.items()}


def row_counts(location: Location, key: Sequence[str] = ()) -> RowCounts:
    """Counts rows and finds duplicates, one range of ticks at a time: memory does not grow with the table.

    Without a key, rows are duplicates if all their columns are equal.
    """
    delta = _open(location)
    ordinal = (key or key_of(location))[0]
    key = key or (named_key(delta, location) or pa.schema(delta.schema().to_arrow()).names if delta is not None else ())
    counts: list[pa.Table] = []
    duplicates: list[pa.Table] = []
    if delta is not None:
        try:
            for keys in _keys_by_range(delta, location, key, ordinal):
                grouped = keys.group_by(list(key)).aggregate([([], "count_all")])
                duplicates.append(grouped.filter(pc.greater(grouped["count_all"], 1)))
                counts.append(keys.group_by(ordinal).aggregate([([], "count_all")]))
        except (OSError, pa.ArrowException) as error:
            raise TableUnreadable(table=location, reason=one_line(error)) from error
    counted = pa.concat_tables(counts).sort_by(ordinal) if counts else None
    if counted is not None and counted[ordinal].null_count:
        raise TableUnreadable(table=location, reason=f"it has rows without {ordinal}")
    repeated = pa.concat_tables(duplicates) if duplicates else None
    return RowCounts(
        ticks_of(counted[ordinal]) if counted else np.empty(0, np.int64),
        counted["count_all"].to_numpy() if counted else np.empty(0, np.int64),
        repeated.select(list(key)).slice(0, _SHOWN).to_pylist() if repeated else [],
        repeated.num_rows if repeated else 0,
        int(delta.version()) if delta is not None else None,
    )


def rows_of(location: Location, ordinal: str, numbers: Sequence[int]) -> pa.Table:
    """Returns the rows with these numbers in column `ordinal`."""
    delta = _open(location)
    if delta is None:
        raise TableUnreadable(table=location, reason="it does not exist")
    try:
        return dataset_of(delta, location).to_table(filter=ds.field(ordinal).isin(list(numbers)))
    except (OSError, pa.ArrowException) as error:
        raise TableUnreadable(table=location, reason=one_line(error)) from error


def _keys_by_range(delta: DeltaTable, location: Location, key: Sequence[str], ordinal: str) -> Iterator[pa.Table]:
    """Yields the key columns of one range of ticks after the other, each with about `_ROWS_AT_ONCE` rows."""
    files = contents_of(delta, location, ordinal)
    if not files:
        return
    dataset = dataset_of(delta, location)
    bounds = [file.bounds for file in files if file is not None and file.bounds is not None and not file.nulls]
    if len(bounds) < len(files):
        # A file cannot be read, or rows have no tick. Reading everything finds both.
        yield dataset.to_table(columns=list(key))
        return
    low, high = min(one.start for one in bounds), max(one.end for one in bounds)
    parts = max(1, -(-sum(file.rows for file in files if file is not None) // _ROWS_AT_ONCE))
    edges = [low + (high + 1 - low) * part // parts for part in range(parts + 1)]
    tick = ds.field(ordinal)
    for first, beyond in pairwise(edges):
        # Both bounds are inclusive, because the tick after the last may not fit into int64. Two edges may be equal.
        if first < beyond:
            yield dataset.to_table(columns=list(key), filter=(tick >= first) & (tick <= beyond - 1))


def _ticks(file: TableFile, ordinal: str) -> list[Ticks]:
    try:
        return list(ticks_in(file, [_EVERY_TICK], ordinal))
    except (OSError, pa.ArrowException) as error:
        raise TableUnreadable(table=file, reason=one_line(error)) from error


def _open(location: Location, version: int | None = None) -> DeltaTable | None:
    try:
        delta = opened_table(location, version)
    except TableNotFoundError:
        return None
    except (DeltaError, OSError) as error:
        raise TableUnreadable(table=location, reason=one_line(error)) from error
    check_readable(delta, location)
    return delta
