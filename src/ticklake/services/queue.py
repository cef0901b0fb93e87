"""The tick queue between a producer and its persistence services: bounded, in order, popped in batches."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from ticklake import defaults
from ticklake.services.errors import QueueClosed, TicksOutOfOrder
from ticklake.storage import EncodedTick


def _never() -> bool:
    return False


class _Queued(NamedTuple):
    tick: EncodedTick
    at: float


class TickQueue:
    """Ticks of one run. A full queue makes the producer wait. Batches of competing consumers never interleave.

    A consumer owns a popped batch until it calls `done` or `release`. A released batch is the next one to be popped.
    """

    def __init__(
        self,
        max_ticks: int = defaults.QUEUE_TICKS,
        max_bytes: int = defaults.QUEUE_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_ticks = max_ticks
        self._max_bytes = max_bytes
        self._clock = clock
        self._changed = threading.Condition()
        self._queued: deque[_Queued] = deque()
        self._released: deque[list[EncodedTick]] = deque()
        self._bytes = 0
        self._popped = 0
        self._waiting_puts = 0
        self._closed = False
        self._last_tick: int | None = None

    def put(self, tick: EncodedTick, timeout: float | None = None, unless: Callable[[], bool] = _never) -> bool:
        """Waits for room and adds a tick. Returns False after the timeout, or if `unless` becomes true first."""
        with self._changed:
            if not self._wait_for_room(len(tick.data), timeout, unless):
                return False
            self._check(tick)
            self._queued.append(_Queued(tick, self._clock()))
            self._bytes += len(tick.data)
            self._last_tick = tick.number
            self._changed.notify_all()
            return True

    def pop(
        self,
        max_ticks: int,
        timeout: float,
        max_bytes: int = defaults.QUEUE_BYTES,
        unless: Callable[[], bool] = _never,
        within: float = math.inf,
    ) -> list[EncodedTick]:
        """Pops the next batch once it is full, its oldest tick is `timeout` seconds old, or the queue is closed.

        Returns an empty list if no tick comes within `timeout` seconds, if no batch is ready within `within` seconds,
        if `unless` becomes true, or after the end.
        """
        with self._changed:
            end = self._clock() + within
            deadline = self._clock() + timeout
            while not unless():
                if self._ready(max_ticks, timeout, max_bytes):
                    return self._pop(max_ticks, max_bytes)
                due = min(end, self._queued[0].at + timeout if self._queued else deadline)
                if due <= self._clock() or self.finished:
                    return []
                self._changed.wait(due - self._clock())
            return []

    def pop_now(self, max_ticks: int, up_to: int, max_bytes: int = defaults.QUEUE_BYTES) -> list[EncodedTick]:
        """Pops queued ticks without waiting; nothing if the next one is above `up_to`."""
        with self._changed:
            if self._released or (self._queued and self._queued[0].tick.number <= up_to):
                return self._pop(max_ticks, max_bytes)
            return []

    def done(self, count: int) -> None:
        """Reports that `count` popped ticks are durable and, if the database answers, announced."""
        with self._changed:
            self._popped -= count
            self._changed.notify_all()

    def release(self, ticks: list[EncodedTick]) -> None:
        """Returns unwritten ticks. They stay one batch, because others may have popped the ticks that follow."""
        with self._changed:
            self._released.append(ticks)
            self._popped -= len(ticks)
            self._bytes += sum(len(tick.data) for tick in ticks)
            self._changed.notify_all()

    def close(self) -> None:
        """Ends the run: no more ticks are accepted. Queued ticks can still be popped."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def wake(self) -> None:
        """Wakes up all waiting threads, so that they check `unless`."""
        with self._changed:
            self._changed.notify_all()

    def wait_finished(self, timeout: float | None = None, unless: Callable[[], bool] = _never) -> bool:
        """Waits until the queue is finished. Returns False after the timeout, or if `unless` becomes true first."""
        with self._changed:
            self._changed.wait_for(lambda: self.finished or unless(), timeout)
            return self.finished

    @property
    def last_tick(self) -> int | None:
        """The last accepted tick; None before the first one."""
        return self._last_tick

    @property
    def closed(self) -> bool:
        """Whether the run has ended, so that no more ticks are accepted."""
        return self._closed

    @property
    def finished(self) -> bool:
        """Whether the queue is closed and every tick is done."""
        with self._changed:
            return self._closed and not self._queued and not self._released and self._popped == 0

    @property
    def size_bytes(self) -> int:
        """The size of all queued ticks."""
        return self._bytes

    def __len__(self) -> int:
        with self._changed:
            return len(self._queued) + sum(map(len, self._released))

    def _check(self, tick: EncodedTick) -> None:
        if self._closed:
            raise QueueClosed(last_tick=self._last_tick)
        if self._last_tick is not None and tick.number <= self._last_tick:
            raise TicksOutOfOrder(tick=tick.number, last_tick=self._last_tick)

    def _wait_for_room(self, size: int, timeout: float | None, unless: Callable[[], bool]) -> bool:
        if self._closed or self._has_room(size):
            return True
        self._waiting_puts += 1
        self._changed.notify_all()
        try:
            self._changed.wait_for(lambda: self._closed or self._has_room(size) or unless(), timeout)
            return self._closed or self._has_room(size)
        finally:
            self._waiting_puts -= 1

    def _has_room(self, size: int) -> bool:
        # An empty queue accepts a tick of any size.
        return not self._queued or (len(self._queued) < self._max_ticks and self._bytes + size <= self._max_bytes)

    def _ready(self, max_ticks: int, timeout: float, max_bytes: int) -> bool:
        if self._released:
            return True
        if not self._queued:
            return False
        full = len(self._queued) >= max_ticks or self._bytes >= max_bytes or self._waiting_puts > 0
        return full or self._closed or self._queued[0].at + timeout <= self._clock()

    def _pop(self, max_ticks: int, max_bytes: int) -> list[EncodedTick]:
        batch = self._released.popleft() if self._released else self._pop_queued(max_ticks, max_bytes)
        self._popped += len(batch)
        self._bytes -= sum(len(tick.data) for tick in batch)
        self._changed.notify_all()
        return batch

    def _pop_queued(self, max_ticks: int, max_bytes: int) -> list[EncodedTick]:
        batch = [self._queued.popleft().tick]
        size = len(batch[0].data)
        while self._queued and len(batch) < max_ticks and size + len(self._queued[0].tick.data) <= max_bytes:
            batch.append(self._queued.popleft().tick)
            size += len(batch[-1].data)
        return batch
