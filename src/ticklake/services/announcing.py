"""Announces files that are already written. While the database is away, announcements wait; writing goes on."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable
from functools import partial

from google.protobuf.message import Message as Payload

from ticklake.backoff import pause_after
from ticklake.database import OUTAGES
from ticklake.database.errors import TransactionAborted
from ticklake.monitoring import Monitor
from ticklake.services.retry import Retry
from ticklake.topics import Run, TopicWriter

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 1.0
LONGEST_PAUSE = 5.0
_OUTAGES = (*OUTAGES, TransactionAborted)


def _nothing() -> None: ...


class Announcer:
    """Sends messages to one topic of a run, in order. Used by one thread; survives restarts of its service."""

    def __init__(
        self,
        run: Run,
        topic: str,
        monitor: Monitor,
        retry: Retry | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run, self._topic, self._monitor = run, topic, monitor
        self._retry = retry or Retry()
        self._clock = clock
        self._writer: TopicWriter | None = None
        self._waiting: deque[tuple[str, Payload, Callable[[], None]]] = deque()
        self._failures = 0
        self._not_before = 0.0
        monitor.counter("notifications_sent")
        monitor.counter("notification_retries")
        monitor.gauge("unannounced_files", lambda: len(self._waiting))

    def __len__(self) -> int:
        """The number of announcements that wait."""
        return len(self._waiting)

    @property
    def pause(self) -> float:
        """The seconds until the next attempt; infinite if nothing waits."""
        return max(0.0, self._not_before - self._clock()) if self._waiting else math.inf

    def add(self, what: str, message: Payload, sent: Callable[[], None] = _nothing) -> None:
        """Adds an announcement of a durable file. `sent` is called once it is stored."""
        self._waiting.append((what, message, sent))

    def send(self, *, now: bool = False) -> bool:
        """Sends what waits; during an outage only now and then. Returns whether nothing waits any more."""
        if self._waiting and (now or self._clock() >= self._not_before):
            try:
                self._send_all()
            except _OUTAGES as error:
                self._postpone(error)
        return not self._waiting

    def send_all(self, wait: Callable[[float], bool]) -> None:
        """Sends everything. If `wait` returns False first, makes one more attempt; the rest waits for the next start.

        Their files are durable, so `sent` is called for them, too.
        """
        while not self.send():
            if not wait(self.pause):
                if not self.send(now=True):
                    self._give_up()
                return

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _send_all(self) -> None:
        if self._writer is None:
            self._writer = self._run.writer(self._topic, patience=PATIENCE_SECONDS)
        outage, count = self._failures > 0, len(self._waiting)
        while self._waiting:
            what, message, sent = self._waiting[0]
            send = partial(self._writer.send, message)
            self._retry.call(f"Publishing {what}", send, self._monitor, "notification_retries", at_once=_OUTAGES)
            self._waiting.popleft()
            self._monitor.counter("notifications_sent").add()
            sent()
        self._failures, self._not_before = 0, 0.0
        self._monitor.healthy = True
        if outage:
            log.info("The database answers again: announced %d files of run %s", count, self._run.id)

    def _give_up(self) -> None:
        for _, _, sent in self._waiting:
            sent()
        self._waiting = deque((what, message, _nothing) for what, message, _ in self._waiting)
        self._monitor.errors.record("LEFT_UNANNOUNCED", f"{len(self._waiting)} files", self._run.id)
        log.warning(
            "%d files of run %s are written, but not announced: reconciliation announces them",
            len(self._waiting),
            self._run.id,
        )

    def _postpone(self, error: Exception) -> None:
        self._failures += 1
        self._not_before = self._clock() + pause_after(self._failures, longest=LONGEST_PAUSE)
        self._monitor.healthy = False
        self._monitor.errors.record("NOT_ANNOUNCED", error, self._run.id)
        if self._failures == 1:
            log.warning("Files of run %s are written, but cannot be announced yet: %s", self._run.id, error)
