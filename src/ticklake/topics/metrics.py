"""What all readers and writers of a run count together, under the names that dashboards already know."""

from __future__ import annotations

import threading
from functools import partial
from typing import NamedTuple
from weakref import WeakSet

from ticklake.database import Schema
from ticklake.monitoring import METRICS_WINDOW_SECONDS, Monitor


class TopicEnd(NamedTuple):
    """The readers of a group, or the writers (without a group), of one topic in this process.

    The first of the monitors has what all of them have ever counted; the others have the gauges of those that are open.
    """

    topic: str
    group: str | None
    monitors: list[Monitor]


class TopicMetrics:
    """The run's totals. Every number costs the same to record and to read, however much has happened."""

    def __init__(self, schema: Schema, window_seconds: float = METRICS_WINDOW_SECONDS) -> None:
        self.window_seconds = window_seconds
        self._lock = threading.Lock()
        self._open: dict[tuple[str, str | None], WeakSet[Monitor]] = {}
        self._counted: dict[tuple[str, str | None], Monitor] = {}
        self.monitor = Monitor(f"topics of {schema.run_id}", window_seconds)
        for name in (
            "messages_published",
            "messages_received",
            "messages_acknowledged",
            "stuck_messages_reassigned",
            "stale_acks_rejected",
            "dead_letters_added",
            "queries_executed",
        ):
            self.monitor.counter(name)
        self._published = self.monitor.counter("messages_published")
        self._received = self.monitor.counter("messages_received")
        self._write_rate = self.monitor.window("write_throughput_per_sec")
        self._read_rate = self.monitor.window("read_throughput_per_sec")
        schema.count_statements = self.monitor.counter("queries_executed").add
        for state in ("active", "idle", "total", "waiting"):
            self.monitor.gauge(f"pool_{state}_connections", partial(_connections, schema, state))

    def opened(self, name: str, topic: str, group: str | None = None) -> Monitor:
        """The monitor of one end. What it counts stays counted when it is closed, forgotten, or closed too early."""
        end = topic, group
        with self._lock:
            counted = self._counted.setdefault(end, Monitor(name, self.window_seconds))
            monitor = Monitor(name, self.window_seconds, into=counted)
            self._open.setdefault(end, WeakSet()).add(monitor)
            return monitor

    def closed(self, monitor: Monitor, topic: str, group: str | None = None) -> None:
        with self._lock:
            self._open[topic, group].discard(monitor)

    def ends(self) -> list[TopicEnd]:
        with self._lock:
            return [
                TopicEnd(*end, [counted, *(one.only_gauges() for one in self._open[end])])
                for end, counted in self._counted.items()
            ]

    def published(self, count: int) -> None:
        self._published.add(count)
        self._write_rate.add(count)

    def received(self, count: int) -> None:
        self._received.add(count)
        self._read_rate.add(count)

    def add(self, name: str, count: int = 1) -> None:
        self.monitor.counter(name).add(count)


def _connections(schema: Schema, state: str) -> int:
    return schema.pool()[state]
