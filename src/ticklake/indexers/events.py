"""The event indexer: drains an event queue into the table `events`, each event once."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from ticklake.errors import FlushFailed, TickLakeError
from ticklake.events import Batch, Event, IndexerQueue
from ticklake.lake.flush import Flushed, Flusher
from ticklake.lake.lake import Lake
from ticklake.lake.slices import Slice
from ticklake.lake.table import Table
from ticklake.lake.task import Work
from ticklake.services.base import Service
from ticklake.storage.files import BatchFile, Storage
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
_READ_SCHEMA = pa.schema([("tick_number", pa.int64()), *list(TABLE.schema)[1:]])


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
        name: str = "event-indexer",
    ) -> None:
        super().__init__(name)
        self._queue, self._lake, self._run_id, self._spark = queue, lake, run_id, spark
        self._max_batches = max_batches
        self._until_drained = until_drained

    def run(self) -> None:
        ledger = self._lake.ledger(self._run_id, TABLE)
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
        events = {batch.sequence: batch.events for batch in batches}
        work = Work(
            flush_id="",
            storage=Storage(self._lake.root),
            world=None,
            reads=(),
            table=TABLE,
            directory=str(self._lake.directory(self._run_id, TABLE.name)),
            rows=_rows,
            read=_Reader(events),
        )
        slices = [self._slice(batch) for batch in batches]
        try:
            flushed = self._flush(flusher(work), slices)
        except FlushFailed as error:
            for batch in batches:
                self._queue.mark_batch_failed(batch.batch_id, error)
            return
        for number, batch in enumerate(batches):
            if number in flushed.failures:
                self._queue.mark_batch_failed(batch.batch_id, flushed.failures[number].error)
            else:
                self._queue.mark_batch_done(batch.batch_id)
        self.monitor.counter("events_written").add(flushed.rows)
        self.monitor.counter("batches_processed").add(len(batches) - len(flushed.failures))

    def _flush(self, flusher: Flusher, slices: list[Slice]) -> Flushed:
        """Tries again for as long as it takes where no batch is to blame: the disk is full, Spark is away."""
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

    def _slice(self, batch: Batch) -> Slice:
        place = TickRange(batch.sequence, batch.sequence)
        return Slice(BatchFile(self._run_id, batch.batch_id, place, batch.event_count), place)


class _Reader:
    """Events travel with the job: the queue's file is open in one process only."""

    def __init__(self, events: Mapping[int, list[Event]]) -> None:
        self._events = events

    def __call__(self, work: Work, piece: Slice) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        sequence = piece.ticks.start
        rows = [
            {
                "tick_number": sequence,
                "position": position,
                "event_id": event.event_id,
                "type": event.type,
                "timestamp": event.timestamp,
                "payload": json.dumps(event.payload),
            }
            for position, event in enumerate(self._events[sequence])
        ]
        yield pa.RecordBatch.from_pylist(rows, schema=_READ_SCHEMA)


def _rows(batch: pa.RecordBatch, world: World | None) -> pa.RecordBatch:  # noqa: ARG001
    return pa.RecordBatch.from_arrays(batch.columns, schema=TABLE.schema)
