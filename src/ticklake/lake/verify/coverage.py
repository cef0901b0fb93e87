"""What a table holds, tick by tick, and whether any key is there twice: read from its Parquet files, not its log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ticklake.lake.delta import (
    DeltaError,
    DeltaTable,
    TableNotFoundError,
    check_readable,
    contents_of,
    dataset_of,
    is_counted_by,
    named_key,
    one_line,
    paths_of,
    recorded,
)
from ticklake.lake.empty import joined, ticks_of
from ticklake.lake.errors import TableUnreadable
from ticklake.lake.ledger import ticks_in
from ticklake.ticks import TickRange

Ticks = npt.NDArray[np.int64]
TICK = "tick_number"
# Also those that no run has: they are unexpected.
_EVERY_TICK = TickRange(np.iinfo(np.int64).min, np.iinfo(np.int64).max)
# Rows that are looked through at a time for keys that are there twice.
_ROWS_AT_ONCE = 4 << 20
_SHOWN = 100


@dataclass(frozen=True)
class Covered:
    """The ticks of a table: those with rows, and those that its commits say have none."""

    with_rows: Ticks
    without_rows: Ticks

    @property
    def ticks(self) -> Ticks:
        return joined([self.with_rows, self.without_rows])


@dataclass(frozen=True)
class RowCounts:
    """The rows of each tick, in tick order, and the first keys that are there more than once."""

    ticks: Ticks
    rows: Ticks
    duplicates: list[dict[str, int]]
    duplicated: int


def key_of(directory: Path) -> tuple[str, ...]:
    """The key that a table says it has. Its first column is what the table counts by; none: it counts by nothing.

    A table that names no key and has ticks, such as another engine may write, counts by those.
    """
    delta = _open(directory)
    return (TICK,) if delta is None else named_key(delta, directory) or ((TICK,) if is_counted_by(delta, TICK) else ())


def covered(directory: Path) -> Covered:
    """Reads only the column that the table counts by, and that only if a row group's bounds do not tell."""
    delta, key = _open(directory), key_of(directory)
    if delta is None or not key:
        return Covered(np.empty(0, np.int64), np.empty(0, np.int64))
    if any(file is not None and file.nulls for file in contents_of(delta, directory, key[0])):
        raise TableUnreadable(table=directory, reason=f"it has rows without {key[0]}")
    found = joined(part for path in paths_of(delta, directory) for part in _ticks(path, key[0]))
    told = recorded(directory / "_delta_log", str(delta.metadata().id), int(delta.version()))
    return Covered(found, told.empty.all())


def table_id(directory: Path) -> str | None:
    """The table's own id; None where there is no table."""
    delta = _open(directory)
    return None if delta is None else str(delta.metadata().id)


def properties_of(directory: Path) -> Mapping[str, str]:
    """What a table says of itself; nothing where there is no table."""
    delta = _open(directory)
    return {} if delta is None else {name: value or "" for name, value in delta.metadata().configuration.items()}


def row_counts(directory: Path, key: Sequence[str] = ()) -> RowCounts:
    """Counts rows and looks for duplicates a stretch of ticks at a time: memory does not grow with the table.

    Without a key, rows are duplicates that are the same in every column.
    """
    delta = _open(directory)
    ordinal = (key or key_of(directory))[0]
    key = key or (
        named_key(delta, directory) or pa.schema(delta.schema().to_arrow()).names if delta is not None else ()
    )
    counts: list[pa.Table] = []
    twins: list[pa.Table] = []
    if delta is not None:
        try:
            for keys in _stretches(delta, directory, key, ordinal):
                grouped = keys.group_by(list(key)).aggregate([([], "count_all")])
                twins.append(grouped.filter(pc.greater(grouped["count_all"], 1)))
                counts.append(keys.group_by(ordinal).aggregate([([], "count_all")]))
        except (OSError, pa.ArrowException) as error:
            raise TableUnreadable(table=directory, reason=one_line(error)) from error
    counted = pa.concat_tables(counts).sort_by(ordinal) if counts else None
    if counted is not None and counted[ordinal].null_count:
        raise TableUnreadable(table=directory, reason=f"it has rows without {ordinal}")
    double = pa.concat_tables(twins) if twins else None
    return RowCounts(
        ticks_of(counted[ordinal]) if counted else np.empty(0, np.int64),
        counted["count_all"].to_numpy() if counted else np.empty(0, np.int64),
        double.select(list(key)).slice(0, _SHOWN).to_pylist() if double else [],
        double.num_rows if double else 0,
    )


def rows_of(directory: Path, ordinal: str, numbers: Sequence[int]) -> pa.Table:
    """The rows of these ticks, or of whatever else the table counts by."""
    delta = _open(directory)
    if delta is None:
        raise TableUnreadable(table=directory, reason="there is no table")
    try:
        return dataset_of(delta, directory).to_table(filter=ds.field(ordinal).isin(list(numbers)))
    except (OSError, pa.ArrowException) as error:
        raise TableUnreadable(table=directory, reason=one_line(error)) from error


def _stretches(delta: DeltaTable, directory: Path, key: Sequence[str], ordinal: str) -> Iterator[pa.Table]:
    """The key columns, in stretches of ticks that hold about as many rows as may be looked at together."""
    files = contents_of(delta, directory, ordinal)
    if not files:
        return
    dataset = dataset_of(delta, directory)
    bounds = [file.bounds for file in files if file is not None and file.bounds is not None and not file.nulls]
    if len(bounds) < len(files):
        # A file that cannot be read, or rows without a tick, which are in no stretch: found by who reads all.
        yield dataset.to_table(columns=list(key))
        return
    low, high = min(one.start for one in bounds), max(one.end for one in bounds)
    parts = max(1, -(-sum(file.rows for file in files if file is not None) // _ROWS_AT_ONCE))
    edges = [low + (high + 1 - low) * part // parts for part in range(parts + 1)]
    tick = ds.field(ordinal)
    for first, beyond in pairwise(edges):
        # Both inside: what is beyond the last tick of all is no int64. An edge may be there twice.
        if first < beyond:
            yield dataset.to_table(columns=list(key), filter=(tick >= first) & (tick <= beyond - 1))


def _ticks(path: Path, ordinal: str) -> list[Ticks]:
    try:
        return list(ticks_in(path, [_EVERY_TICK], ordinal))
    except (OSError, pa.ArrowException) as error:
        raise TableUnreadable(table=path, reason=one_line(error)) from error


def _open(directory: Path) -> DeltaTable | None:
    try:
        delta = DeltaTable(directory)
    except TableNotFoundError:
        return None
    except (DeltaError, OSError) as error:
        raise TableUnreadable(table=directory, reason=one_line(error)) from error
    check_readable(delta, directory)
    return delta
