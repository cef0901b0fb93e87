"""The event indexer: writes the events of an event queue to the table `events`, each event once."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ticklake.checks.numbers import check_count
from ticklake.errors import TickLakeError
from ticklake.events import Batch, IndexerQueue
from ticklake.indexers.errors import OtherEventBatch, OtherEventQueue
from ticklake.lake.delta import RUN, Location
from ticklake.lake.errors import FlushFailed, TableReplaced
from ticklake.lake.flush import Flushed, Flusher, Work
from ticklake.lake.lake import Lake
from ticklake.lake.ledger import Ledger
from ticklake.lake.slices import Slice
from ticklake.lake.table import Table
from ticklake.lake.verify import rows_of
from ticklake.services import Service
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
QUEUE = "ticklake.queue"
"""The table property with the id of the queue. Batch numbers are only unique within a queue."""
FIRST = "ticklake.first_batch"
"""The table property with the number of the first batch of the run."""
_RETRY_SECONDS = 5.0
MAX_FLUSH_BYTES = 16 * 1024 * 1024
"""A flush gets no further batch after this many bytes of events."""


@dataclass(frozen=True)
class QueuedBatch:
    """A batch of an event queue as the source of a slice. `sequence` is its number in the queue."""

    key: str
    sequence: int
    size: int

    @property
    def ticks(self) -> TickRange:
        return TickRange(self.sequence, self.sequence)

    def provenance(self, first: int, last: int) -> dict[str, object]:
        return {"event_batch": self.key, "batch_numbers": [first, last]}


class EventLedger(Ledger):
    """The ledger of the table `events`. Opening it raises `OtherEventQueue` if the table belongs to another queue."""

    def __init__(self, location: Location, queue: IndexerQueue, run_id: str, first: int | None = None) -> None:
        self._queue_id, self._queue_path = queue.queue_id, queue.path
        properties = {RUN: run_id, QUEUE: self._queue_id} | ({FIRST: str(first)} if first is not None else {})
        super().__init__(location, TABLE, properties=properties)

    def _check_properties(self, found: Mapping[str, str | None]) -> None:
        super()._check_properties(found)
        # A table from before queues had ids has no such property; `check_same` compares its events.
        if found.get(QUEUE, self._queue_id) != self._queue_id:
            raise OtherEventQueue(table=self.location, queue=self._queue_path)

    def check_same(self, batches: Sequence[Batch]) -> None:
        """Raises `OtherEventBatch` if the table has other events under the number of one of these batches."""
        stored = rows_of(self.location, TABLE.ordinal, [batch.sequence for batch in batches])
        found: dict[int, list[dict[str, Any]]] = {}
        for row in sorted(stored.to_pylist(), key=lambda row: row["position"]):
            found.setdefault(row["batch_number"], []).append(_comparable(row))
        for batch in batches:
            if found.get(batch.sequence) != [_comparable(row) for row in _rows(batch).to_pylist()]:
                raise OtherEventBatch(table=self.location, number=batch.sequence, queue=self._queue_path)


class EventIndexer(Service):
    """Writes each batch of the queue to `events` completely or not at all, as other indexers write ticks.

    A batch that is delivered again, because of a crash before `mark_batch_done`, is compared and not written again. A
    table has the batches of one queue only.
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
        """With `owns_queue` the indexer opens the queue when it starts and closes it when it ends."""
        super().__init__(name)
        check_count("max_batches", max_batches, least=1)
        self._queue, self._lake, self.run_id, self._spark = queue, lake, run_id, spark
        self._max_batches = max_batches
        self._until_drained = until_drained
        self._owns_queue = owns_queue
        for counter in ("events_written", "batches_processed", "batches_failed"):
            self.monitor.counter(counter)

    def run(self) -> None:
        with self._queue if self._owns_queue else nullcontext():
            location = self._lake.location(self.run_id, TABLE.name)
            # Refuse another queue before a batch of it is claimed.
            exists = location.has_commits()
            ledger = EventLedger(location, self._queue, self.run_id) if exists else None
            while self.proceed():
                batches = self._collect()
                if batches:
                    first = self._queue.assign(batches, self.run_id)
                    ledger = ledger or self._create(location, first)
                    self._index(batches, partial(Flusher, self._spark, ledger=ledger))
                elif self._until_drained:
                    return

    def _create(self, location: Location, first: int) -> EventLedger:
        """Creates the table. Only the first batch shows with which number the run begins."""
        location.make()
        return EventLedger(location, self._queue, self.run_id, first)

    def _collect(self) -> list[Batch]:
        """Returns the available batches up to the limits. Waits only for the first one."""
        batches: list[Batch] = []
        while len(batches) < self._max_batches and sum(batch.size for batch in batches) < MAX_FLUSH_BYTES:
            try:
                batch = self._queue.get_next_batch(timeout=0.0 if batches else 0.5)
            except TickLakeError:
                if not batches:
                    raise
                break  # index the collected batches first
            if batch is None:
                break
            batches.append(batch)
        return batches

    def _index(self, batches: list[Batch], flusher: Callable[[Work], Flusher]) -> None:
        work = work_of(batches, self._lake.location(self.run_id, TABLE.name))
        flushing = flusher(work)
        try:
            flushed = self._flush(flushing, slices_of(batches))
        except FlushFailed as error:
            if len(batches) == 1:
                self._fail_batch(batches[0], str(error))
            else:
                # One of them crashed the job. Index each alone, so that only that one fails.
                for batch in batches:
                    self._index([batch], flusher)
            return
        if flushed.ticks_present and isinstance(flushing.ledger, EventLedger):
            flushing.ledger.check_same([one for place, one in enumerate(batches) if place not in flushed.failures])
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
            log.warning("Event batch %s failed and is retried: %s", batch.batch_id, error)

    def _flush(self, flusher: Flusher, slices: list[Slice]) -> Flushed:
        """Flushes. Retries without a limit if no batch is the cause, for example if the disk is full."""
        while True:
            try:
                return flusher.flush(slices)
            except (FlushFailed, OtherEventQueue, TableReplaced):
                raise
            except TickLakeError as error:
                self.monitor.errors.record("FLUSH_FAILED", error)
                log.warning("Flush of %d event batches failed and is retried: %s", len(slices), error)
                if not self.wait(_RETRY_SECONDS):
                    raise


def work_of(batches: Sequence[Batch], location: Location) -> Work:
    """Returns the work for Spark. It contains the events, because only one process can open the queue."""
    return Work(
        flush_id="",
        storage=None,
        world=None,
        reads=(),
        table=TABLE,
        location=location,
        rows=_unchanged,
        read=_Reader({batch.sequence: _rows(batch) for batch in batches}),
        ordinal=TABLE.ordinal,
    )


def slices_of(batches: Sequence[Batch]) -> list[Slice]:
    sources = [QueuedBatch(batch.batch_id, batch.sequence, _rows(batch).nbytes) for batch in batches]
    return [Slice(source, source.ticks) for source in sources]


class _Reader:
    """Reads the events of a slice from memory."""

    def __init__(self, batches: Mapping[int, pa.RecordBatch]) -> None:
        self._batches = batches

    def __call__(self, work: Work, slice_: Slice) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        yield self._batches[slice_.ticks.start]


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


def _comparable(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a row with its JSON parsed, so that its format does not matter."""
    return {**row, "payload": json.loads(row["payload"])}


def _unchanged(batch: pa.RecordBatch, world: World | None) -> pa.RecordBatch:  # noqa: ARG001
    return batch
