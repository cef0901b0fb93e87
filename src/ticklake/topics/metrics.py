"""The metrics of all readers and writers of a run. Their names and meanings are in `metric_names`."""

from __future__ import annotations

import threading
from functools import partial
from typing import NamedTuple
from weakref import WeakSet

from ticklake.database import Schema
from ticklake.monitoring import METRICS_WINDOW_SECONDS, Monitor


class TopicEnd(NamedTuple):
    """All readers of a group, or all writers (`group` is None), of a topic in this process.

    The first monitor has the counts of all readers or writers so far. The others have the gauges of the open ones.
    """

    topic: str
    group: str | None
    monitors: list[Monitor]


class TopicMetrics:
    """The totals of a run. The cost of recording and reading does not grow with their number."""

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

    def add_monitor(self, name: str, topic: str, group: str | None = None) -> Monitor:
        """Returns a monitor for a new reader or writer. Its counts are kept after it is closed or garbage-collected."""
        end = topic, group
        with self._lock:
            counted = self._counted.setdefault(end, Monitor(name, self.window_seconds))
            monitor = Monitor(name, self.window_seconds, into=counted)
            self._open.setdefault(end, WeakSet()).add(monitor)
            return monitor

    def remove_monitor(self, monitor: Monitor, topic: str, group: str | None = None) -> None:
        """Removes the gauges of a closed reader or writer."""
        with self._lock:
            self._open[topic, group].discard(monitor)

    def ends(self) -> list[TopicEnd]:
        """Returns the readers of each group and the writers of each topic."""
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
