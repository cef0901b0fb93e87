"""Events that are accepted but not yet on disk."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, islice, takewhile
from typing import NamedTuple

from ticklake.events.errors import EventsNotDurable, QueueFull, QueueNotRunning
from ticklake.events.event import Line
from ticklake.monitoring import Counter


@dataclass(frozen=True)
class Triggers:
    """When events are written: at `batch_size` events, after `timeout` seconds, or if a publisher waits for them.

    At most `capacity` events and `batch_bytes` bytes are written at once.
    """

    batch_size: int
    timeout: float
    capacity: int
    batch_bytes: int


class Due(NamedTuple):
    """The events to write next, and the seconds that the first one has waited."""

    lines: list[Line]
    age: float


class Buffer:
    """Holds up to `capacity` events in order. An event is removed when it is on disk."""

    def __init__(self, triggers: Triggers, *, blocks: bool, blocked: Counter, name: str) -> None:
        self._triggers = triggers
        self._blocks = blocks
        self._blocked = blocked
        self._name = name
        lock = threading.Lock()
        self._filled, self._emptied, self._settled = (threading.Condition(lock) for _ in range(3))
        self._lines: deque[Line] = deque()
        self._arrivals: deque[float] = deque()  # of each line
        self._accepted = self._written = self._wanted = self._failures = 0
        self._reason = ""
        self._closed = False

    def __len__(self) -> int:
        return len(self._lines)

    def add(self, lines: Sequence[Line]) -> BufferReceipt:
        """Accepts events. If there is no room, waits or raises `QueueFull`, depending on `blocks`."""
        with self._filled:
            if not self._blocks and len(self._lines) + len(lines) > self._triggers.capacity:
                self._blocked.add()
                raise QueueFull(queue=self._name, capacity=self._triggers.capacity)
            for start in range(0, len(lines), self._triggers.batch_size):
                self._append(lines[start : start + self._triggers.batch_size])
            return BufferReceipt(self, self._accepted)

    def wait_due(self) -> Due | None:
        """Waits until events must be written and returns them; None once the buffer is closed and empty."""
        with self._filled:
            while not (self._closed or self._due()):
                self._filled.wait(self._until_due())
            lines = self._first()
            return Due(lines, time.monotonic() - self._arrivals[0]) if lines else None

    def written(self, count: int) -> None:
        """Removes the first `count` events, which are now on disk."""
        with self._filled:
            for _ in range(min(count, len(self._lines))):  # they may have been discarded meanwhile
                self._lines.popleft()
                self._arrivals.popleft()
            self._written += count
            self._emptied.notify_all()
            self._settled.notify_all()

    def failed(self, reason: str) -> None:
        """Reports a failed write to waiting publishers. The events stay in the buffer."""
        with self._filled:
            self._failures += 1
            self._reason = reason
            self._settled.notify_all()

    def wait_written(self, number: int) -> None:
        """Waits until the first `number` accepted events are on disk. Raises `EventsNotDurable` if that fails."""
        with self._filled:
            failures = self._failures
            self._wanted = max(self._wanted, number)
            self._filled.notify()
            self._settled.wait_for(lambda: self._written >= number or self._failures > failures or self._lost())
            if self._written < number:
                reason = self._reason if self._failures > failures else "the queue was stopped without writing them."
                raise EventsNotDurable(queue=self._name, reason=reason)

    def close(self, *, discard: bool = False) -> int:
        """Refuses further events. Returns the number of events that are not on disk; `discard` drops them."""
        with self._filled:
            self._closed = True
            left = len(self._lines)
            if discard:
                self._lines.clear()
                self._arrivals.clear()
            for condition in (self._filled, self._emptied, self._settled):
                condition.notify_all()
            return left

    def wait_closed(self, seconds: float) -> bool:
        """Sleeps, at most until the buffer is closed. Returns whether it is closed."""
        with self._filled:
            return self._filled.wait_for(lambda: self._closed, seconds)

    def _first(self) -> list[Line]:
        """Returns the first events that fit in a batch; at least one, if there is one."""
        sizes = accumulate(len(line.text) for line in islice(self._lines, self._triggers.capacity))
        fitting = sum(1 for _ in takewhile(lambda size: size <= self._triggers.batch_bytes, sizes))
        return list(islice(self._lines, max(1, fitting)))

    def _append(self, lines: Sequence[Line]) -> None:
        if not self._has_room(len(lines)):
            self._blocked.add()
            self._emptied.wait_for(lambda: self._has_room(len(lines)))
        if self._closed:
            raise QueueNotRunning(queue=self._name)
        before = len(self._lines)
        self._lines.extend(lines)
        self._arrivals.extend([time.monotonic()] * len(lines))
        self._accepted += len(lines)
        if not before or before < self._triggers.batch_size <= len(self._lines):
            self._filled.notify()

    def _has_room(self, count: int) -> bool:
        return self._closed or len(self._lines) + count <= self._triggers.capacity

    def _due(self) -> bool:
        if not self._lines:
            return False
        many = len(self._lines) >= self._triggers.batch_size
        return many or self._wanted > self._written or self._until_due() == 0

    def _until_due(self) -> float | None:
        if not self._lines:
            return None
        return max(0.0, self._arrivals[0] + self._triggers.timeout - time.monotonic())

    def _lost(self) -> bool:
        return self._closed and not self._lines


@dataclass(frozen=True)
class BufferReceipt:
    """The receipt for the first `number` events of a buffer."""

    buffer: Buffer
    number: int

    def wait(self) -> None:
        self.buffer.wait_written(self.number)
