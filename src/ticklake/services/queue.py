"""The way from a producer to its persistence services: bounded, in order, and handed over in whole runs."""

from __future__ import annotations

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
    """Ticks of one run. A full queue makes the producer wait; competing takers get runs that never interleave.

    A taker owns what it took until it says `done`, or gives it back: then the same run is the next to be taken.
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
        self._given_back: deque[list[EncodedTick]] = deque()
        self._bytes = 0
        self._taken = 0
        self._waiting_puts = 0
        self._closed = False
        self._last_tick: int | None = None

    def put(self, tick: EncodedTick, timeout: float | None = None, unless: Callable[[], bool] = _never) -> bool:
        """Wait for room and add a tick: it is accepted. False where there was no room in time, or before `unless`."""
        with self._changed:
            if not self._wait_for_room(len(tick.data), timeout, unless):
                return False
            self._check(tick)
            self._queued.append(_Queued(tick, self._clock()))
            self._bytes += len(tick.data)
            self._last_tick = tick.number
            self._changed.notify_all()
            return True

    def take(
        self,
        max_ticks: int,
        timeout: float,
        max_bytes: int = defaults.QUEUE_BYTES,
        unless: Callable[[], bool] = _never,
    ) -> list[EncodedTick]:
        """The next run of ticks: full, or with the oldest one `timeout` seconds old, or all that a closed queue holds.

        Nothing where nothing came for `timeout` seconds, once `unless` is true, or after the end.
        """
        with self._changed:
            deadline = self._clock() + timeout
            while not unless():
                if self._ready(max_ticks, timeout, max_bytes):
                    return self._pop(max_ticks, max_bytes)
                due = self._queued[0].at + timeout if self._queued else deadline
                if due <= self._clock() or self.finished:
                    return []
                self._changed.wait(due - self._clock())
            return []

    def take_now(self, max_ticks: int, up_to: int, max_bytes: int = defaults.QUEUE_BYTES) -> list[EncodedTick]:
        """What is there of the ticks up to `up_to`, without waiting for more."""
        with self._changed:
            if self._given_back or (self._queued and self._queued[0].tick.number <= up_to):
                return self._pop(max_ticks, max_bytes)
            return []

    def done(self, count: int) -> None:
        """So many of the taken ticks are durable, and the topic knows."""
        with self._changed:
            self._taken -= count
            self._changed.notify_all()

    def give_back(self, ticks: list[EncodedTick]) -> None:
        """These could not be written; they stay one run, because others may have taken what follows them."""
        with self._changed:
            self._given_back.append(ticks)
            self._taken -= len(ticks)
            self._bytes += sum(len(tick.data) for tick in ticks)
            self._changed.notify_all()

    def close(self) -> None:
        """The end of the run: no more ticks. What is queued can still be taken."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def wake(self) -> None:
        """Make everybody who waits here look at their `unless` again."""
        with self._changed:
            self._changed.notify_all()

    def wait_finished(self, timeout: float | None = None, unless: Callable[[], bool] = _never) -> bool:
        """Wait until the queue is closed and all its ticks are done. False after the timeout, or before `unless`."""
        with self._changed:
            self._changed.wait_for(lambda: self.finished or unless(), timeout)
            return self.finished

    @property
    def last_tick(self) -> int | None:
        """The last tick that was accepted; None before the first."""
        return self._last_tick

    @property
    def closed(self) -> bool:
        """Whether the run has ended: no more ticks are accepted."""
        return self._closed

    @property
    def finished(self) -> bool:
        """Closed, and every tick is done."""
        with self._changed:
            return self._closed and not self._queued and not self._given_back and self._taken == 0

    @property
    def size_bytes(self) -> int:
        """The bytes of all ticks that are queued."""
        return self._bytes

    def __len__(self) -> int:
        with self._changed:
            return len(self._queued) + sum(map(len, self._given_back))

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
        # A tick larger than the whole queue still gets through an empty one.
        return not self._queued or (len(self._queued) < self._max_ticks and self._bytes + size <= self._max_bytes)

    def _ready(self, max_ticks: int, timeout: float, max_bytes: int) -> bool:
        if self._given_back:
            return True
        if not self._queued:
            return False
        full = len(self._queued) >= max_ticks or self._bytes >= max_bytes or self._waiting_puts > 0
        return full or self._closed or self._queued[0].at + timeout <= self._clock()

    def _pop(self, max_ticks: int, max_bytes: int) -> list[EncodedTick]:
        run = self._given_back.popleft() if self._given_back else self._pop_queued(max_ticks, max_bytes)
        self._taken += len(run)
        self._bytes -= sum(len(tick.data) for tick in run)
        self._changed.notify_all()
        return run

    def _pop_queued(self, max_ticks: int, max_bytes: int) -> list[EncodedTick]:
        run = [self._queued.popleft().tick]
        size = len(run[0].data)
        while self._queued and len(run) < max_ticks and size + len(self._queued[0].tick.data) <= max_bytes:
            run.append(self._queued.popleft().tick)
            size += len(run[-1].data)
        return run
