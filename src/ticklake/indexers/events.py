"""The event indexer: drains an event queue into the table `events`, each event once."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from ticklake.errors import FlushFailed, TickLakeError
from ticklake.events import Batch, IndexerQueue
from ticklake.lake.flush import Flushed, Flusher
from ticklake.lake.lake import Lake
from ticklake.lake.slices import Slice
from ticklake.lake.table import Table
from ticklake.lake.task import Work
from ticklake.services.base import Service
from ticklake.ticks import TickRange
from ticklake.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

TABLE = Table(
    "events",
    key=("batch_number", "position"),
    schema=pa.schema(
        [
            ("batch_number", pa.int64()),
            ("position", pa.int32()),
            ("event_id", pa.string()),
            ("type", pa.string()),
            ("timestamp", pa.float64()),
            ("payload", pa.string()),
        ]
    ),
)
_RETRY_SECONDS = 5.0


@dataclass(frozen=True)
class QueuedBatch:
    """A batch of an event queue as the source of a slice: one number, its place in the queue."""

    key: str
    sequence: int
    size: int

    @property
    def ticks(self) -> TickRange:
        return TickRange(self.sequence, self.sequence)

    def claim(self, first: int, last: int) -> dict[str, object]:
        return {"event_batch": self.key, "batch_numbers": [first, last]}


class EventIndexer(Service):
    """A batch of the queue is to `events` what a tick is to the other tables: there as a whole or not at all.

    So a batch that is delivered again after a crash between the commit and `mark_batch_done` is found, and left.
    """

    def __init__(
        self,
        queue: IndexerQueue,
        lake: Lake,
        run_id: str,
        spark: Callable[[], SparkSession],
        *,
        max_batches: int = 100,
        until_drained: bool = False,
        owns_queue: bool = False,
        name: str = "event-indexer",
    ) -> None:
        """With `owns_queue` the queue is open while the indexer runs, and closed otherwise."""
        super().__init__(name)
        self._queue, self._lake, self.run_id, self._spark = queue, lake, run_id, spark
        self._max_batches = max_batches
        self._until_drained = until_drained
        self._owns_queue = owns_queue
        for counter in ("events_written", "batches_processed", "batches_failed"):
            self.monitor.counter(counter)

    def run(self) -> None:
        with self._queue if self._owns_queue else nullcontext():
            ledger = self._lake.ledger(self.run_id, TABLE)
            while self.proceed():
                batches = self._collect()
                if batches:
                    self._index(batches, lambda work: Flusher(self._spark, work, ledger))
                elif self._until_drained:
                    return

    def _collect(self) -> list[Batch]:
        """What is there, up to a limit; waits for the first one only."""
        batches: list[Batch] = []
        while len(batches) < self._max_batches:
            batch = self._queue.get_next_batch(timeout=0.0 if batches else 0.5)
            if batch is None:
                break
            batches.append(batch)
        return batches

    def _index(self, batches: list[Batch], flusher: Callable[[Work], Flusher]) -> None:
        work = work_of(batches, str(self._lake.directory(self.run_id, TABLE.name)))
        try:
            flushed = self._flush(flusher(work), slices_of(batches))
        except FlushFailed as error:
            for batch in batches:
                self._fail_batch(batch, str(error))
            return
        for number, batch in enumerate(batches):
            if number in flushed.failures:
                self._fail_batch(batch, flushed.failures[number].error)
            else:
                self._queue.mark_batch_done(batch.batch_id)
        self.monitor.counter("events_written").add(flushed.rows)
        self.monitor.counter("batches_processed").add(len(batches) - len(flushed.failures))

    def _fail_batch(self, batch: Batch, error: str) -> None:
        self.monitor.counter("batches_failed").add()
        self.monitor.errors.record("BATCH_FAILED", error, f"batch {batch.batch_id}, delivery {batch.attempts}")
        if not self._queue.mark_batch_failed(batch.batch_id, error):
            log.warning("Event batch %s failed, trying again: %s", batch.batch_id, error)

    def _flush(self, flusher: Flusher, slices: list[Slice]) -> Flushed:
        """Tries again for as long as it takes if no batch is to blame: the disk is full, Spark is away."""
        while True:
            try:
                return flusher.flush(slices)
            except FlushFailed:
                raise
            except TickLakeError as error:
                self.monitor.errors.record("FLUSH_FAILED", error)
                log.warning("Flush of %d event batches failed, trying again: %s", len(slices), error)
                if not self.wait(_RETRY_SECONDS):
                    raise


def work_of(batches: Sequence[Batch], directory: str) -> Work:
    """Events travel with the job: the queue's file is open in one process only."""
    return Work(
        flush_id="",
        storage=None,
        world=None,
        reads=(),
        table=TABLE,
        directory=directory,
        rows=_as_they_are,
        read=_Reader({batch.sequence: _rows(batch) for batch in batches}),
        ordinal=TABLE.ordinal,
    )


def slices_of(batches: Sequence[Batch]) -> list[Slice]:
    sources = [QueuedBatch(batch.batch_id, batch.sequence, _rows(batch).nbytes) for batch in batches]
    return [Slice(source, source.ticks) for source in sources]


class _Reader:
    """Hands out the events of a batch."""

    def __init__(self, batches: Mapping[int, pa.RecordBatch]) -> None:
        self._batches = batches

    def __call__(self, work: Work, piece: Slice) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        yield self._batches[piece.ticks.start]


def _rows(batch: Batch) -> pa.RecordBatch:
    rows = [
        {
            "batch_number": batch.sequence,
            "position": position,
            "event_id": event.event_id,
            "type": event.type,
            "timestamp": event.timestamp,
            "payload": json.dumps(event.payload),
        }
        for position, event in enumerate(batch.events)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=TABLE.schema)


def _as_they_are(batch: pa.RecordBatch, world: World | None) -> pa.RecordBatch:  # noqa: ARG001
    return batch
