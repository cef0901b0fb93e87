"""The bridge from an event bus to durable batches that an indexer pulls."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from ticklake.checks.numbers import InvalidOption, check_count, check_seconds, deadline_after
from ticklake.checks.places import local_path
from ticklake.events.batches import Batch, Batches, DeadBatch
from ticklake.events.buffer import Buffer, BufferReceipt, Triggers
from ticklake.events.bus import EventBus
from ticklake.events.errors import EventsNotDurable, QueueNotRunning
from ticklake.events.event import LARGEST, Event, encode
from ticklake.events.ownership import Ownership
from ticklake.monitoring import Monitor
from ticklake.text import error_text, message_text

DEFAULT_BATCH_SIZE = 100
FLUSH_TIMEOUT_MS = 500
MAX_BATCH_SIZE = 1000
MAX_BATCH_BYTES = LARGEST
RETRY_SECONDS = 0.5
LONGEST_AGE = 1_000_000_000_000
_log = logging.getLogger(__name__)


@dataclass
class QueueMetrics:
    """`events_*_total` and the average count since the process began; the rest is now."""

    buffer_size: int
    pending_batches: int
    events_processed_total: int
    events_duplicate_total: int
    avg_flush_latency_ms: float


class IndexerQueue:
    """Takes events from a bus, writes them in batches, and hands those out, the oldest first, until they are done.

    A batch closes at 100 events or after 500 ms; under load one takes up to 1,000, and never more than 64 MiB. An event
    whose publisher waits is written at once. One process at a time has a file. `when_full` says what a publisher gets
    while 1,000 events are not on disk yet: "wait" for room, or an "error".
    """

    def __init__(
        self, db_path: str | Path = "data/indexer_queue.db", *, when_full: str = "wait", max_attempts: int = 5
    ) -> None:
        if when_full not in ("wait", "error"):
            raise InvalidOption(option="when_full", value=when_full, allowed='"wait" or "error"')
        check_count("max_attempts", max_attempts, least=1)
        self.path = local_path(db_path, "An event queue").resolve()  # two names of one file are one queue
        self.monitor = Monitor(f"queue {self.path.name}")
        self._blocks = when_full == "wait"
        self._max_attempts = max_attempts
        self._changed = threading.Condition()
        self._version = 0
        self._life = threading.Lock()
        self._buffer: Buffer | None = None
        self._batches: Batches | None = None
        self._thread: threading.Thread | None = None
        self._ownership = Ownership(self.path)
        self.monitor.gauge("buffer_size", lambda: self.metrics().buffer_size)
        self.monitor.gauge("pending_batches", lambda: self.metrics().pending_batches)

    def start(self) -> None:
        """Open the file, take up what a crash has left, and accept events."""
        with self._life:
            if self._batches is not None:
                return
            self._ownership.acquire()
            try:
                batches = Batches(
                    self.path,
                    batch_size=DEFAULT_BATCH_SIZE,
                    batch_bytes=MAX_BATCH_BYTES,
                    timeout=FLUSH_TIMEOUT_MS / 1000,
                    max_attempts=self._max_attempts,
                )
                given_back = batches.recover()
            except BaseException:
                self._ownership.release()
                raise
            triggers = Triggers(DEFAULT_BATCH_SIZE, FLUSH_TIMEOUT_MS / 1000, MAX_BATCH_SIZE, MAX_BATCH_BYTES)
            blocked = self.monitor.counter("publishers_held_up")
            buffer = Buffer(triggers, blocks=self._blocks, blocked=blocked, name=str(self.path))
            self._buffer, self._batches = buffer, batches
            self._thread = threading.Thread(
                target=self._flush_all, args=(buffer, batches), name="indexer queue", daemon=True
            )
            self._thread.start()
        _log.info(
            "Queue %s started, %d batches pending, %d of them begun before", self.path, batches.pending, given_back
        )

    def stop(self, graceful: bool = True) -> None:
        """Accept nothing more, write what is accepted, close the file. Not gracefully: forget what is not on disk."""
        if self._ownership.inherited:
            return
        with self._life:
            if self._batches is None or self._buffer is None or self._thread is None:
                return
            left = self._buffer.close(discard=not graceful)
            self._thread.join()
            while self._write_next(self._buffer, self._batches):
                pass  # it failed a moment ago: try once more, or raise
            self._batches.close()
            self._ownership.release()
            self._batches, self._thread = None, None
        self._tell()
        if left and not graceful:
            self.monitor.errors.record("EVENTS_DISCARDED", f"up to {left} events were not written")
            _log.warning("Queue %s stopped without writing up to %d events", self.path, left)
        _log.info("Queue %s stopped", self.path)

    def subscribe_to_eventbus(self, bus: EventBus) -> str:
        """Have every event that is published on `bus`. Returns the subscription's id."""
        return bus.subscribe(self.offer)

    def offer(self, events: Sequence[Event]) -> BufferReceipt:
        """Accept events, in this order. They are durable once the receipt's `wait` has returned."""
        lines = [encode(event) for event in events]
        self._ownership.check_process(self.path)
        if self._buffer is None:
            raise QueueNotRunning(queue=self.path)
        return self._buffer.add(lines)

    def get_next_batch(self, timeout: float = 0.1) -> Batch | None:
        """The oldest closed batch that nobody has; None after `timeout` seconds without one."""
        until = deadline_after(timeout, time.monotonic())
        deadline = threading.TIMEOUT_MAX if until is None else until
        while True:
            seen = self._version
            found = self._running().next()
            for batch_id in found.dead:
                self._buried(batch_id, "it cannot be delivered any more")
            left = deadline - time.monotonic()
            if found.batch is not None or left <= 0:
                return found.batch
            with self._changed:
                pause = left if found.wait is None else min(left, max(0.0, found.wait))
                self._changed.wait_for(lambda seen=seen: self._version != seen, pause)  # type: ignore[misc]

    @property
    def queue_id(self) -> str:
        """The queue's own id. A file that is made anew has another."""
        return self._running().queue_id

    def assign(self, batches: Sequence[Batch], run_id: str) -> int:
        """Record that these batches belong to a run. Returns the number of the run's first batch."""
        return self._running().assign([batch.batch_id for batch in batches], run_id)

    def mark_batch_done(self, batch_id: str) -> bool:
        """True where the batch is done now; False where nobody has it."""
        return self._running().finish(batch_id)

    def mark_batch_failed(self, batch_id: str, error: BaseException | str) -> bool:
        """The work failed. False: it is delivered again, before all others. True: it is now a dead letter."""
        text = error_text(error)
        buried = self._running().fail(batch_id, text)
        if buried:
            self._buried(batch_id, text)
        self._tell()
        return buried

    def dead_batches(self, limit: int = 100) -> list[DeadBatch]:
        """The dead letters of the queue, the oldest first."""
        check_count("limit", limit)
        return self._running().dead(limit)

    def count_dead_batches(self) -> int:
        """The number of dead letters of the queue."""
        return self._running().count_dead()

    def replay(self, batch_id: str) -> bool:
        """Deliver a dead batch again, before all others."""
        revived = self._running().replay(batch_id)
        self._tell()
        return revived

    def prune(self, max_age: float) -> tuple[int, int]:
        """Forget batches done and events seen more than `max_age` seconds ago: such an event, sent again, is new.

        Never the events of a batch that is not done. How many batches and events.
        """
        check_seconds("max_age", max_age, most=LONGEST_AGE)
        return self._running().prune(max_age)

    def metrics(self) -> QueueMetrics:
        """The figures of the queue as they are now."""
        return QueueMetrics(
            buffer_size=0 if self._buffer is None else len(self._buffer),
            pending_batches=0 if self._batches is None else self._batches.pending,
            events_processed_total=self.monitor.counter("events_processed_total").value,
            events_duplicate_total=self.monitor.counter("events_duplicate_total").value,
            avg_flush_latency_ms=self.monitor.percentiles("flush_latency").average * 1000,
        )

    def __enter__(self) -> IndexerQueue:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def _flush_all(self, buffer: Buffer, batches: Batches) -> None:
        while True:
            try:
                if not self._write_next(buffer, batches):
                    return
            except EventsNotDurable as error:
                self.monitor.healthy = False
                self.monitor.errors.record("FLUSH_FAILED", error)
                _log.warning("Queue %s: %s", self.path, error)
                if buffer.wait_closed(RETRY_SECONDS):
                    return

    def _write_next(self, buffer: Buffer, batches: Batches) -> bool:
        """Write what is due next; False once the buffer is closed and empty."""
        try:
            due = buffer.take()
            if due is None:
                return False
            with self.monitor.percentiles("flush_latency").timed():
                stored = batches.store(due.lines, due.age)
            self.monitor.healthy = True
            self.monitor.counter("events_processed_total").add(stored.new)
            self.monitor.counter("events_duplicate_total").add(stored.duplicates)
            buffer.written(len(due.lines))
        except Exception as error:  # whatever it is (no memory, say), those who wait are told, and it is tried again
            reason = f"{message_text(error).rstrip('.')}."
            buffer.failed(reason)
            raise EventsNotDurable(queue=self.path, reason=reason) from error
        self._tell()
        return True

    def _tell(self) -> None:
        with self._changed:
            self._version += 1
            self._changed.notify_all()

    def _running(self) -> Batches:
        self._ownership.check_process(self.path)
        if self._batches is None:
            raise QueueNotRunning(queue=self.path)
        return self._batches

    def _buried(self, batch_id: str, error: str) -> None:
        self.monitor.counter("batches_dead_total").add()
        self.monitor.errors.record("DEAD_BATCH", error, f"batch {batch_id}")
        _log.warning("DEAD_BATCH queue=%s batch=%s: %s", self.path, batch_id, error)
