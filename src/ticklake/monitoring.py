"""Metrics, health and recent errors of a component. Time and memory do not grow with its uptime."""

from __future__ import annotations

import math
import re
import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from types import MappingProxyType
from typing import Any, TypeVar

from ticklake.text import message_text, storable

METRICS_WINDOW_SECONDS = 60
ERROR_HISTORY = 100
WINDOW_SLOTS = 30
LATENCY_BOUNDS = tuple(scale * 10.0**power for power in range(-5, 3) for scale in (1.0, 2.5, 5.0))
"""Upper bounds of the latency buckets in seconds: 10 µs to 500 s, three per decade. Longer times count as 500 s."""

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_Metric = TypeVar("_Metric")


class Counter:
    """A number that only grows. Also counts `into` another counter, if given."""

    def __init__(self, into: Counter | None = None) -> None:
        self._lock = threading.Lock()
        self._value = 0
        self._into = into

    def add(self, amount: int = 1) -> None:
        with self._lock:
            self._value += amount
        if self._into is not None:
            self._into.add(amount)

    @property
    def value(self) -> int:
        return self._value


class _Slots:
    """The slots of a ring buffer over time."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        if not seconds > 0:
            raise ValueError(f"a window must be longer than 0 seconds, not {seconds}")
        self.seconds = seconds
        self._width = seconds / WINDOW_SLOTS
        self._clock = clock
        self._started = self._latest = int(clock() // self._width)

    def advance(self) -> tuple[int, Sequence[int]]:
        """Returns the current slot and the slots that are now too old (at most the whole ring)."""
        now = int(self._clock() // self._width)
        if now <= self._latest:
            return self._latest % WINDOW_SLOTS, ()
        first = max(self._latest + 1, now - WINDOW_SLOTS + 1)
        self._latest = now
        return now % WINDOW_SLOTS, [slot % WINDOW_SLOTS for slot in range(first, now + 1)]

    def covered(self) -> float:
        """Returns the seconds that the window covers. A new window covers less than its full length."""
        return min(self.seconds, (self._latest - self._started + 1) * self._width)


class Window:
    """Total and rate of an amount over the last `seconds`."""

    def __init__(
        self,
        seconds: float = METRICS_WINDOW_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        into: Window | None = None,
    ) -> None:
        self._into = into
        self._lock = threading.Lock()
        self._slots = _Slots(seconds, clock)
        self._amounts = [0.0] * WINDOW_SLOTS
        self._total = 0.0

    def add(self, amount: float = 1) -> None:
        with self._lock:
            self._amounts[self._advance()] += amount
            self._total += amount
        if self._into is not None:
            self._into.add(amount)

    @property
    def total(self) -> float:
        with self._lock:
            self._advance()
            return self._total

    @property
    def rate(self) -> float:
        """Returns the amount per second."""
        with self._lock:
            self._advance()
            return self._total / self._slots.covered()

    def _advance(self) -> int:
        current, expired = self._slots.advance()
        for slot in expired:
            self._amounts[slot] = 0.0
        if expired:
            # Add up again: subtraction may leave a rounding error below zero.
            self._total = math.fsum(self._amounts)
        return current


class Percentiles:
    """Durations of the last `seconds` in fixed buckets; `count`, `sum` and `histogram` are over the whole life."""

    def __init__(
        self,
        seconds: float = METRICS_WINDOW_SECONDS,
        bounds: tuple[float, ...] = LATENCY_BOUNDS,
        clock: Callable[[], float] = time.monotonic,
        into: Percentiles | None = None,
    ) -> None:
        self.bounds = bounds
        self._into = into
        self.count = 0
        self.sum = 0.0
        self._lock = threading.Lock()
        self._slots = _Slots(seconds, clock)
        self._counts = [[0] * len(bounds) for _ in range(WINDOW_SLOTS)]
        self._totals = [0] * len(bounds)
        self._ever = [0] * len(bounds)

    def record(self, seconds: float) -> None:
        found = bisect_left(self.bounds, seconds)
        bucket = min(found, len(self.bounds) - 1)
        with self._lock:
            if found < len(self.bounds):
                self._ever[found] += 1
            self._counts[self._advance()][bucket] += 1
            self._totals[bucket] += 1
            self.count += 1
            self.sum += seconds
        if self._into is not None:
            self._into.record(seconds)

    @contextmanager
    def timed(self) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self.record(time.perf_counter() - started)

    def percentile(self, percent: float) -> float:
        """Returns the upper bound of the bucket with the given percentile, in seconds; 0 without durations."""
        with self._lock:
            self._advance()
            rank, seen = sum(self._totals) * percent / 100, 0
            for bound, count in zip(self.bounds, self._totals, strict=True):
                seen += count
                if count and seen >= rank:
                    return bound
        return 0.0

    def histogram(self) -> tuple[list[int], int, float]:
        """For each bound the number of durations up to it, then the number and the sum of all, since the start."""
        with self._lock:
            return list(accumulate(self._ever)), self.count, self.sum

    @property
    def average(self) -> float:
        return self.sum / self.count if self.count else 0.0

    def _advance(self) -> int:
        current, expired = self._slots.advance()
        for slot in expired:
            self._totals = [total - old for total, old in zip(self._totals, self._counts[slot], strict=True)]
            self._counts[slot] = [0] * len(self.bounds)
        return current


@dataclass(frozen=True)
class OperationalError:
    """An error that did not stop the component."""

    at: float
    code: str
    message: str
    details: str = ""


class ErrorLog:
    """The last errors, oldest first. Older ones are only counted."""

    def __init__(self, limit: int = ERROR_HISTORY, clock: Callable[[], float] = time.time) -> None:
        self._errors: deque[OperationalError] = deque(maxlen=limit)
        self._clock = clock
        self.recorded = Counter()

    def record(self, code: str, message: str | BaseException, details: str = "") -> None:
        self._errors.append(OperationalError(self._clock(), code, message_text(message), storable(details)))
        self.recorded.add()

    def clear(self) -> None:
        self._errors.clear()

    def __iter__(self) -> Iterator[OperationalError]:
        return iter(self._errors.copy())

    def __len__(self) -> int:
        return len(self._errors)


class Monitor:
    """Metrics, health and errors of a component. Metric names are valid in Prometheus.

    A metric is created on first use of its name. Counters and times are also recorded `into` another monitor, which
    may outlive this one. Gauges are not.
    """

    def __init__(self, name: str, window_seconds: float = METRICS_WINDOW_SECONDS, into: Monitor | None = None) -> None:
        self.name = name
        self._into = into
        self.errors = ErrorLog()
        self.healthy = True
        self._window_seconds = window_seconds
        self._lock = threading.Lock()
        self._counters: dict[str, Counter] = {}
        self._windows: dict[str, Window] = {}
        self._percentiles: dict[str, Percentiles] = {}
        self._gauges: dict[str, Callable[[], float]] = {}

    def counter(self, name: str) -> Counter:
        into = None if self._into is None else self._into.counter(name)
        return self._metric(self._counters, name, lambda: Counter(into))

    def window(self, name: str) -> Window:
        into = None if self._into is None else self._into.window(name)
        return self._metric(self._windows, name, lambda: Window(self._window_seconds, into=into))

    def percentiles(self, name: str) -> Percentiles:
        into = None if self._into is None else self._into.percentiles(name)
        return self._metric(self._percentiles, name, lambda: Percentiles(self._window_seconds, into=into))

    def gauge(self, name: str, read: Callable[[], float]) -> None:
        """Sets a number that `read` returns on demand. `read` must be quick and must not block."""
        self._metric(self._gauges, name, lambda: read)
        self._gauges[name] = read

    @property
    def counters(self) -> Mapping[str, Counter]:
        return MappingProxyType(self._counters)

    @property
    def windows(self) -> Mapping[str, Window]:
        return MappingProxyType(self._windows)

    @property
    def latencies(self) -> Mapping[str, Percentiles]:
        return MappingProxyType(self._percentiles)

    @property
    def gauges(self) -> Mapping[str, Callable[[], float]]:
        return MappingProxyType(self._gauges)

    def snapshot(self) -> dict[str, Any]:
        """Returns all values as numbers: counters, rates per second, gauges, latencies in milliseconds, errors."""
        numbers: dict[str, Any] = {name: counter.value for name, counter in list(self._counters.items())}
        numbers |= {name: window.rate for name, window in list(self._windows.items())}
        numbers |= {name: read() for name, read in list(self._gauges.items())}
        for name, latency in list(self._percentiles.items()):
            numbers |= {f"{name}_p{p}_ms": latency.percentile(p) * 1000 for p in (50, 95, 99)}
            numbers[f"{name}_avg_ms"] = latency.average * 1000
        return numbers | {"error_count": self.errors.recorded.value, "healthy": self.healthy}

    def only_gauges(self) -> Monitor:
        """Returns a monitor with only the gauges, for readers that get the counts from the `into` monitor."""
        found = Monitor(self.name, self._window_seconds)
        found._gauges = self._gauges
        return found

    def _metric(self, metrics: dict[str, _Metric], name: str, make: Callable[[], _Metric]) -> _Metric:
        with self._lock:
            if name in metrics:
                return metrics[name]
            if not _NAME.fullmatch(name):
                raise ValueError(f"a metric must have a name such as messages_sent, not {name!r}")
            if any(name in others for others in (self._counters, self._windows, self._percentiles, self._gauges)):
                raise ValueError(f"{self.name} has another kind of metric named {name!r}")
            metrics[name] = make()
            return metrics[name]
