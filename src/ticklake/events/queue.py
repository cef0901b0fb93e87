"""A queue that stores the events of a bus in durable batches, for an indexer."""

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
    """The figures of a queue. Totals and the average are since the process began, the others are current."""

    buffer_size: int
    pending_batches: int
    events_processed_total: int
    events_duplicate_total: int
    avg_flush_latency_ms: float


class IndexerQueue:
    """Stores the events of a bus in batches, and delivers them, oldest first, until they are done.

    A batch is closed at 100 events or after 500 ms. Under load it has up to 1,000 events, but never more than 64 MiB.
    If a publisher waits for an event, it is written at once. One process at a time can open a file. While 1,000 events
    are not on disk, publishers wait for room (`when_full="wait"`) or get an error (`when_full="error"`).
    """

    def __init__(
        self, db_path: str | Path = "data/indexer_queue.db", *, when_full: str = "wait", max_attempts: int = 5
    ) -> None:
        if when_full not in ("wait", "error"):
            raise InvalidOption(option="when_full", value=when_full, allowed='"wait" or "error"')
        check_count("max_attempts", max_attempts, least=1)
        self.path = local_path(db_path, "An event queue").resolve()  # two names of a file are the same queue
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
        """Opens the file, releases batches that a crash left claimed, and accepts events."""
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
                released = batches.recover()
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
            "Queue %s started, %d batches pending, %d of them claimed before", self.path, batches.pending, released
        )

    def stop(self, graceful: bool = True) -> None:
        """Refuses further events, writes the accepted ones (unless not `graceful`) and closes the file."""
        if self._ownership.inherited:
            return
        with self._life:
            if self._batches is None or self._buffer is None or self._thread is None:
                return
            left = self._buffer.close(discard=not graceful)
            self._thread.join()
            while self._write_next(self._buffer, self._batches):
                pass  # the last write may have failed: try once more, or raise
            self._batches.close()
            self._ownership.release()
            self._batches, self._thread = None, None
        self._notify()
        if left and not graceful:
            self.monitor.errors.record("EVENTS_DISCARDED", f"up to {left} events were not written")
            _log.warning("Queue %s stopped without writing up to %d events", self.path, left)
        _log.info("Queue %s stopped", self.path)

    def subscribe_to_eventbus(self, bus: EventBus) -> str:
        """Subscribes to all events of `bus`. Returns the id of the subscription."""
        return bus.subscribe(self.offer)

    def offer(self, events: Sequence[Event]) -> BufferReceipt:
        """Accepts events in this order. They are durable once the `wait` of the receipt returns."""
        lines = [encode(event) for event in events]
        self._ownership.check_process(self.path)
        if self._buffer is None:
            raise QueueNotRunning(queue=self.path)
        return self._buffer.add(lines)

    def get_next_batch(self, timeout: float = 0.1) -> Batch | None:
        """Claims and returns the oldest closed batch; None if there is none for `timeout` seconds."""
        until = deadline_after(timeout, time.monotonic())
        deadline = threading.TIMEOUT_MAX if until is None else until
        while True:
            seen = self._version
            found = self._opened().next()
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
        """The id of the queue. A new file has a new id."""
        return self._opened().queue_id

    def assign(self, batches: Sequence[Batch], run_id: str) -> int:
        """Records that these batches belong to a run. Returns the number of the run's first batch."""
        return self._opened().assign([batch.batch_id for batch in batches], run_id)

    def mark_batch_done(self, batch_id: str) -> bool:
        """Marks a batch as done. Returns False if it was not claimed."""
        return self._opened().finish(batch_id)

    def mark_batch_failed(self, batch_id: str, error: BaseException | str) -> bool:
        """Reports failed work. Returns True if the batch is now a dead letter; else it is delivered again, first."""
        text = error_text(error)
        buried = self._opened().fail(batch_id, text)
        if buried:
            self._buried(batch_id, text)
        self._notify()
        return buried

    def dead_batches(self, limit: int = 100) -> list[DeadBatch]:
        """Returns the dead letters of the queue, oldest first."""
        check_count("limit", limit)
        return self._opened().dead(limit)

    def count_dead_batches(self) -> int:
        """Returns the number of dead letters of the queue."""
        return self._opened().count_dead()

    def replay(self, batch_id: str) -> bool:
        """Delivers a dead letter again, in its old order. Returns False if there is none with this id."""
        revived = self._opened().replay(batch_id)
        self._notify()
        return revived

    def prune(self, max_age: float) -> tuple[int, int]:
        """Removes batches and event ids older than `max_age` seconds. Returns how many of each.

        Events of batches that are not done are kept. An event whose id was removed counts as new if it is sent again.
        """
        check_seconds("max_age", max_age, most=LONGEST_AGE)
        return self._opened().prune(max_age)

    def metrics(self) -> QueueMetrics:
        """Returns the current figures of the queue."""
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
        """Writes the next events. Returns False once the buffer is closed and empty."""
        try:
            due = buffer.wait_due()
            if due is None:
                return False
            with self.monitor.percentiles("flush_latency").timed():
                stored = batches.store(due.lines, due.age)
            self.monitor.healthy = True
            self.monitor.counter("events_processed_total").add(stored.new)
            self.monitor.counter("events_duplicate_total").add(stored.duplicates)
            buffer.written(len(due.lines))
        except Exception as error:  # any error, such as no memory: waiting publishers get it, and the write is retried
            reason = f"{message_text(error).rstrip('.')}."
            buffer.failed(reason)
            raise EventsNotDurable(queue=self.path, reason=reason) from error
        self._notify()
        return True

    def _notify(self) -> None:
        with self._changed:
            self._version += 1
            self._changed.notify_all()

    def _opened(self) -> Batches:
        self._ownership.check_process(self.path)
        if self._batches is None:
            raise QueueNotRunning(queue=self.path)
        return self._batches

    def _buried(self, batch_id: str, error: str) -> None:
        self.monitor.counter("batches_dead_total").add()
        self.monitor.errors.record("DEAD_BATCH", error, f"batch {batch_id}")
        _log.warning("DEAD_BATCH queue=%s batch=%s: %s", self.path, batch_id, error)
