"""The deep comparison: decodes every batch file again on Spark and compares the rows of every tick with the table."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from ticklake.lake.delta import (
    DeltaError,
    DeltaTable,
    LiveFile,
    checksum,
    conformed,
    live_files,
    one_line,
    opened,
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
from ticklake.ticks import TickRange, ranges_of

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


def compare_deeply(spark: SparkSession, work: Work, files: Sequence[BatchFile]) -> Deep:
    """Compares a table with its batch files. `work` names the table and its indexer, as for a flush."""
    decoded = _on_workers(spark, files, lambda file: _decode(work, file))
    unreadable = {key: result for key, result in decoded if isinstance(result, str)}
    from_files = [result for _, result in decoded if isinstance(result, Fingerprints)]
    directory = Path(work.directory)
    assert work.table is not None  # noqa: S101  there is a table to compare with
    log = inspected(directory, work.table.ordinal)
    items = [
        _Item(directory, work.table, file.path, log.bounds.get(file.path, file.ticks), log.checksums.get(file.path, ""))
        for file in _files(directory, work.table.ordinal)
    ]
    scanned = _on_workers(spark, items, _scan)
    unreadable |= {path: result for path, result in scanned if isinstance(result, str)}
    unreadable |= log.flaws
    table = merged(result for _, result in scanned if isinstance(result, Fingerprints))
    return judge(from_files, table, unreadable, work.world.sampling_interval if work.world else 1)


def judge(from_files: Sequence[Fingerprints], table: Fingerprints, unreadable: dict[str, str], step: int) -> Deep:
    """Compares the fingerprints of the files with those of the table."""
    ticks = np.concatenate([np.empty(0, np.int64), *(part.ticks for part in from_files)])
    rows = np.concatenate([np.empty(0, np.int64), *(part.rows for part in from_files)])
    hashes = np.concatenate([np.empty(0, np.uint64), *(part.hashes for part in from_files)])
    there_rows, there_hashes = at(table, ticks)
    same = (rows == there_rows) & (hashes == there_hashes)
    matched, all_ticks = np.unique(ticks[same]), np.unique(ticks)
    return Deep(
        ticks=len(all_ticks),
        different=ranges_of(np.setdiff1d(all_ticks, matched), step),
        disputed=ranges_of(np.intersect1d(matched, ticks[~same]), step),
        unproven=ranges_of(np.setdiff1d(table.ticks, all_ticks), step),
        without_rows=ranges_of(np.unique(ticks[same & (rows == 0)]), step),
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


def _decode(work: Work, file: BatchFile) -> tuple[str, Fingerprints | str]:
    """Returns the key of a file, and the fingerprints of its rows or the reason why it cannot be decoded."""
    try:
        return file.key, merged(_parts(work, Slice(file, file.ticks)))
    except Exception as error:
        # A custom indexer may raise anything.
        return file.key, failure_text(error)


def _parts(work: Work, whole: Slice) -> Iterator[Fingerprints]:
    for part in decoded_slice(work, whole):
        if part.rows is not None and work.table is not None:
            yield fingerprints(part.rows, part.ticks, work.table.ordinal)


class _Item(NamedTuple):
    """A file of the table, and its expected checksum, if known."""

    directory: Path
    table: Table
    name: str
    ticks: TickRange
    checksum: str

    @property
    def path(self) -> Path:
        return self.directory / self.name

    def damaged(self, reason: str) -> tuple[str, str]:
        error = DamagedTableFile(
            file=str(self.path), table=self.table.name, first=self.ticks.start, last=self.ticks.end, reason=reason
        )
        return str(self.path), str(error)


def _files(directory: Path, ordinal: str) -> list[LiveFile]:
    """Returns the files of the table; none if the log cannot be read, which `inspected` reports."""
    try:
        return live_files(DeltaTable(directory), ordinal)
    except (DeltaError, OSError):
        return []


def _scan(item: _Item) -> tuple[str, Fingerprints | str]:
    try:
        if item.checksum and checksum(item.path) != item.checksum:
            return item.damaged("its checksum is wrong")
        # Another engine may have written the columns in another order and with other Arrow types.
        schema = item.table.schema
        with opened(item.path) as file:
            groups = [group.number for group in row_groups(file.metadata, item.table.ordinal)]
            rows = (conformed(file.read_row_group(group), schema) for group in groups)
            return str(item.path), merged(fingerprints(part, ordinal=item.table.ordinal) for part in rows)
    except (OSError, pa.ArrowException) as error:
        return item.damaged(one_line(error))
