"""Merges rows of several Parquet files by key, one range of ticks at a time, so that memory is bounded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ticklake.lake.delta import RowGroup, TableFile, column_of, dataset_from, opened, row_groups
from ticklake.lake.empty import ticks_of
from ticklake.lake.errors import NullInKey
from ticklake.lake.order import ordered
from ticklake.lake.table import Table
from ticklake.ticks import TickRange

Numbers = npt.NDArray[np.int64]

# The number of rows in memory at a time, unless one tick has more.
_ROWS_AT_ONCE = 1 << 18


def merged(files: Sequence[TableFile], table: Table) -> Iterator[pa.RecordBatch]:
    """Yields all rows in ascending order of the key. Two rows with the same key are an error."""
    dataset = dataset_from(files, table.schema)
    column = pc.field(table.ordinal)
    for first, last in tick_ranges(*_rows_per_tick(files, table.ordinal), _ROWS_AT_ONCE):
        # Without threads and readahead, because rows read ahead would also be in memory.
        wanted = (column >= first) & (column <= last)
        rows = dataset.to_table(filter=wanted, use_threads=False, batch_readahead=1, fragment_readahead=1)
        for batch in rows.combine_chunks().to_batches():
            yield ordered(batch, table.key)


def tick_ranges(ticks: Numbers, rows: Numbers, at_once: int) -> Iterator[TickRange]:
    """Yields these ascending ticks in ranges of at most `at_once` rows. One tick is never divided."""
    start = held = 0
    for place, count in enumerate(rows.tolist()):
        if place > start and held + count > at_once:
            yield TickRange(int(ticks[start]), int(ticks[place - 1]))
            start, held = place, 0
        held += count
    if len(ticks):
        yield TickRange(int(ticks[start]), int(ticks[-1]))


def _rows_per_tick(files: Sequence[TableFile], ordinal: str) -> tuple[Numbers, Numbers]:
    """Counts the rows of each tick. Reads tick numbers only from row groups with more than one tick."""
    found = [_counts(stored, group, ordinal) for file in files for stored, group in _row_groups(file, ordinal)]
    ticks = np.concatenate([np.empty(0, np.int64), *(part[0] for part in found)])
    rows = np.concatenate([np.empty(0, np.int64), *(part[1] for part in found)])
    distinct, places = np.unique(ticks, return_inverse=True)
    return distinct, np.bincount(places, rows, len(distinct)).astype(np.int64)


def _row_groups(file: TableFile, ordinal: str) -> Iterator[tuple[pq.ParquetFile, RowGroup]]:
    with opened(file) as stored:
        for group in row_groups(stored.metadata, ordinal):
            yield stored, group


def _counts(file: pq.ParquetFile, group: RowGroup, ordinal: str) -> tuple[Numbers, Numbers]:
    if group.nulls:
        raise NullInKey(column=ordinal)
    if group.bounds is not None and group.bounds.start == group.bounds.end and group.nulls == 0:
        return np.array([group.bounds.start], np.int64), np.array([group.rows], np.int64)
    column = column_of(file, group, ordinal)
    if column.null_count:
        raise NullInKey(column=ordinal)
    ticks, rows = np.unique(ticks_of(column), return_counts=True)
    return ticks, rows
