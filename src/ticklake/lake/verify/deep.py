"""The deep comparison: decodes every batch file again on Spark and compares the rows of every tick with the table."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from ticklake.lake.delta import (
    DeltaError,
    LiveFile,
    Location,
    TableFile,
    added_columns,
    checksum,
    conformed,
    live_files,
    one_line,
    opened,
    opened_table,
    row_groups,
)
from ticklake.lake.errors import DamagedTableFile, FlushFailed
from ticklake.lake.flush import Work, decoded_slice, failure_text
from ticklake.lake.session import parallelism, reason_of
from ticklake.lake.slices import Slice
from ticklake.lake.table import Table
from ticklake.lake.verify.fingerprint import Fingerprints, at, fingerprints, merged
from ticklake.lake.verify.inspection import inspected
from ticklake.storage import BatchFile
from ticklake.ticks import Grid, TickRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# There are this many times more tasks than cores, so that all cores finish at about the same time.
_ROUNDS = 4


@dataclass(frozen=True)
class Deep:
    """The result of a deep comparison.

    `ticks` is the number of ticks compared. `different`: no file has the rows of the table. `disputed`: two files have
    different rows. `unproven`: the table has rows, but no file has the tick. `without_rows`: correctly empty.
    `unreadable`: damaged files of the storage, the table or its log, with the reason.
    """

    ticks: int
    different: list[TickRange]
    disputed: list[TickRange]
    unproven: list[TickRange]
    without_rows: list[TickRange]
    unreadable: dict[str, str]

    @property
    def flaws(self) -> int:
        return len(self.different) + len(self.disputed) + len(self.unproven) + len(self.unreadable)


class Versions(NamedTuple):
    """The fingerprints of the same rows: as of now, and as before columns were added to the table."""

    now: Fingerprints
    before: Fingerprints


def compare_deeply(spark: SparkSession, work: Work, files: Sequence[BatchFile], grid: Grid) -> Deep:
    """Compares a table with its batch files. `work` names the table and its indexer, as for a flush."""
    location, layout = work.location, work.table
    assert location is not None and layout is not None  # noqa: S101  there is a table to compare with
    added = _added(location, layout)
    decoded = _on_workers(spark, files, lambda file: _decode(work, file, added))
    unreadable = {key: result for key, result in decoded if isinstance(result, str)}
    from_files = [result for _, result in decoded if not isinstance(result, str)]
    log = inspected(location, layout.ordinal)
    items = [
        _Item(location.file(one.path), layout, log.bounds.get(one.path, one.ticks), log.checksums.get(one.path, ""))
        for one in _files(location, layout.ordinal)
    ]
    scanned = _on_workers(spark, items, _scan)
    unreadable |= {path: result for path, result in scanned if isinstance(result, str)}
    unreadable |= log.flaws
    table = merged(result for _, result in scanned if isinstance(result, Fingerprints))
    return judge(from_files, table, unreadable, grid)


def judge(from_files: Sequence[Versions], table: Fingerprints, unreadable: dict[str, str], grid: Grid) -> Deep:
    """Compares the fingerprints of the files with those of the table."""
    ticks = np.concatenate([np.empty(0, np.int64), *(part.now.ticks for part in from_files)])
    rows = np.concatenate([np.empty(0, np.int64), *(part.now.rows for part in from_files)])
    now = np.concatenate([np.empty(0, np.uint64), *(part.now.hashes for part in from_files)])
    before = np.concatenate([np.empty(0, np.uint64), *(part.before.hashes for part in from_files)])
    there_rows, there_hashes = at(table, ticks)
    same = (rows == there_rows) & ((now == there_hashes) | (before == there_hashes))
    matched, all_ticks = np.unique(ticks[same]), np.unique(ticks)
    return Deep(
        ticks=len(all_ticks),
        different=grid.ranges_of(np.setdiff1d(all_ticks, matched)),
        disputed=grid.ranges_of(np.intersect1d(matched, ticks[~same])),
        unproven=grid.ranges_of(np.setdiff1d(table.ticks, all_ticks)),
        without_rows=grid.ranges_of(np.unique(ticks[same & (rows == 0)])),
        unreadable=unreadable,
    )


def _on_workers(
    spark: SparkSession, items: Sequence[Any], act: Callable[[Any], tuple[str, Any]]
) -> list[tuple[str, Any]]:
    """Calls `act` for every item on Spark's workers."""
    if not items:
        return []
    tasks = min(len(items), parallelism(spark) * _ROUNDS)
    shares = [list(items[task::tasks]) for task in range(tasks)]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for item in shares[number]:
                    yield pa.RecordBatch.from_pydict({"result": [pickle.dumps(act(item))]})

    try:
        rows = spark.range(0, tasks, 1, tasks).mapInArrow(run, "result binary").collect()
    except Exception as error:
        raise FlushFailed(table="a deep comparison", reason=reason_of(error)) from error
    # Safe: our own tasks have just made these bytes.
    return [pickle.loads(bytes(row["result"])) for row in rows]  # noqa: S301


def _added(location: Location, table: Table) -> frozenset[str]:
    """Returns the columns that older rows of the table do not have."""
    try:
        delta = opened_table(location)
    except (DeltaError, OSError):
        return frozenset()  # `inspected` reports it
    stored = {field.name for field in delta.schema().fields}
    return frozenset({*added_columns(delta.metadata().configuration), *(set(table.schema.names) - stored)})


def _decode(work: Work, file: BatchFile, added: frozenset[str]) -> tuple[str, Versions | str]:
    """Returns the key of a file, and the fingerprints of its rows or the reason why it cannot be decoded."""
    try:
        parts = list(_parts(work, Slice(file, file.ticks), added))
        return file.key, Versions(*(merged(part[place] for part in parts) for place in range(2)))
    except Exception as error:
        # A custom indexer may raise anything.
        return file.key, failure_text(error)


def _parts(work: Work, whole: Slice, added: frozenset[str]) -> Iterator[Versions]:
    for part in decoded_slice(work, whole):
        if part.rows is not None and work.table is not None:
            now = fingerprints(part.rows, part.ticks, work.table.ordinal)
            older = fingerprints(_without(part.rows, added), part.ticks, work.table.ordinal) if added else now
            yield Versions(now, older)


def _without(rows: pa.RecordBatch, added: frozenset[str]) -> pa.RecordBatch:
    """Returns rows as a version before these columns would have written them."""
    arrays = [
        pa.nulls(len(rows), column.type) if name in added else column
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=rows.schema)


class _Item(NamedTuple):
    """A file of the table, and its expected checksum, if known."""

    file: TableFile
    table: Table
    ticks: TickRange
    checksum: str

    def damaged(self, reason: str) -> tuple[str, str]:
        error = DamagedTableFile(
            file=str(self.file), table=self.table.name, first=self.ticks.start, last=self.ticks.end, reason=reason
        )
        return str(self.file), str(error)


def _files(location: Location, ordinal: str) -> list[LiveFile]:
    """Returns the files of the table; none if the log cannot be read, which `inspected` reports."""
    try:
        return live_files(opened_table(location), ordinal)
    except (DeltaError, OSError):
        return []


def _scan(item: _Item) -> tuple[str, Fingerprints | str]:
    try:
        if item.checksum and checksum(item.file) != item.checksum:
            return item.damaged("its checksum is wrong")
        # Another engine may have written the columns in another order and with other Arrow types.
        schema = item.table.schema
        with opened(item.file) as stored:
            groups = [group.number for group in row_groups(stored.metadata, item.table.ordinal)]
            rows = (conformed(stored.read_row_group(group), schema) for group in groups)
            return str(item.file), merged(fingerprints(part, ordinal=item.table.ordinal) for part in rows)
    except (OSError, pa.ArrowException) as error:
        return item.damaged(one_line(error))
