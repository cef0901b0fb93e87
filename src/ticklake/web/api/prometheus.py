"""The metrics of a node in the format of Prometheus."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from typing import TypeVar, cast

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from ticklake.insights import BacklogReport
from ticklake.metric_names import BACKLOG, COORDINATED, GROUP, HELP, NODE, READER, RUN, SERVICE, TOPICS, WRITER, Scope
from ticklake.monitoring import Monitor
from ticklake.node.node import Node
from ticklake.services import Service, State
from ticklake.web.api import node_json
from ticklake.web.feeds.lag import LagSample
from ticklake.web.feeds.sampling import Sampler

_Family = TypeVar("_Family", bound=Metric)
OWN = "Counted by your own indexer."


class Exposition:
    """The text of `/metrics`."""

    def __init__(self, node: Node, sampler: Sampler[LagSample]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(NodeCollector(node, sampler))
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)

    def text(self) -> bytes:
        return generate_latest(self._registry)


class NodeCollector(Collector):
    """Reads all monitors of the node at each scrape, at a constant cost per monitor."""

    def __init__(self, node: Node, sampler: Sampler[LagSample]) -> None:
        self._node, self._lag = node, sampler

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        families, sample = Families(), self._lag.latest()
        self._collect_node(families, sample)
        for name, service in self._node.services.items():
            _collect_service(families, name, service)
        self._collect_runs(families)
        _collect_groups(families, sample)
        _collect_backlogs(families, sample.backlogs)
        yield from families

    def _collect_runs(self, families: Families) -> None:
        """Merges a run whose topics are in several databases, so that its labels occur once."""
        monitors: defaultdict[tuple[Scope, tuple[str, ...]], list[Monitor]] = defaultdict(list)
        for run in (run for database in self._node.databases for run in database.opened):
            monitors[TOPICS, (run.id,)].append(run.monitor)
            for end in run.ends():
                scope = WRITER if end.group is None else READER
                labels = (run.id, end.topic) if end.group is None else (run.id, end.topic, end.group)
                monitors[scope, labels] += end.monitors
        for (about, values), found in monitors.items():
            families.monitors(about, values, found)

    def _collect_node(self, families: Families, sample: LagSample) -> None:
        node = self._node
        who = {"name": node.settings.node.name, "version": version("ticklake")}
        families.gauge(NODE, "info", tuple(who.values()), 1, labels=tuple(who))
        families.gauge(NODE, "ready", (), not (node_json.not_ready(node) or sample.away))
        families.gauge(NODE, "store_up", (), sample.up)
        for transaction, seconds in sample.held_back.items():
            families.gauge(NODE, "open_transaction_seconds", (transaction,), seconds, labels=("transaction",))
        for name, queue in node.queues.items():
            families.gauge(NODE, "queued_ticks", (name,), len(queue), labels=("queue",))
            families.gauge(NODE, "queued_bytes", (name,), queue.size_bytes, labels=("queue",))


def _collect_groups(families: Families, sample: LagSample) -> None:
    for run, group in sample.groups:
        labels = (run, group.topic, group.group)
        families.gauge(GROUP, "lag", labels, group.lag)
        families.gauge(GROUP, "claimed", labels, group.claimed)
        families.gauge(GROUP, "dead_letters", labels, group.dead_letters)
        families.gauge(GROUP, "oldest_age_seconds", labels, group.oldest_seconds or 0.0)
    for one in sample.worst:
        for table in one.coordinated:
            labels = (one.run_id, table.indexer_class, table.table)
            families.gauge(COORDINATED, "files", labels, table.files)
            families.gauge(COORDINATED, "ticks", labels, table.ticks)
            families.gauge(COORDINATED, "in_work", labels, table.in_work)
            families.gauge(COORDINATED, "oldest_age_seconds", labels, table.oldest_seconds or 0.0)
        families.gauge(RUN, "unread_messages", (one.run_id,), one.unread)
        families.gauge(RUN, "gaps_pending", (one.run_id,), one.gaps_pending)
        families.gauge(RUN, "gaps_permanent", (one.run_id,), one.gaps_permanent)


def _collect_backlogs(families: Families, found: BacklogReport) -> None:
    figures = {
        "messages": found.messages,
        "unread_messages": found.unread,
        "files": found.files,
        "ticks": found.ticks,
        "oldest_age_seconds": found.oldest_seconds or 0.0,
        "dead_letters": found.dead_letters,
        "gaps_pending": found.gaps_pending,
        "gaps_permanent": found.gaps_permanent,
        "runs": len(found.runs),
        "runs_unreadable": len(found.unreadable),
        "runs_unchecked": found.unchecked,
    }
    for name, figure in figures.items():
        families.gauge(BACKLOG, name, (), figure)


def _collect_service(families: Families, name: str, service: Service) -> None:
    for state in State:
        families.gauge(SERVICE, "state", (name, state.value), service.state is state, labels=("service", "state"))
    families.gauge(SERVICE, "healthy", (name,), service.monitor.healthy)
    families.counter(SERVICE, "errors", (name,), service.monitor.errors.recorded.value)
    families.monitors(SERVICE, (name,), [service.monitor])


class Families:
    """Collects metric families by their full names."""

    def __init__(self) -> None:
        self._families: dict[str, Metric] = {}

    def __iter__(self) -> Iterator[Metric]:
        return iter(self._families.values())

    def counter(self, scope: Scope, name: str, values: Sequence[str], number: float) -> None:
        family = CounterMetricFamily(scope.family(name), _help(scope, name), labels=scope.labels)
        self._add(family).add_metric(values, number)

    def gauge(
        self, scope: Scope, name: str, values: Sequence[str], number: float, labels: Sequence[str] | None = None
    ) -> None:
        names = scope.labels if labels is None else labels
        family = GaugeMetricFamily(scope.family(name), _help(scope, name), labels=names)
        self._add(family).add_metric(values, float(number))

    def monitors(self, scope: Scope, values: Sequence[str], monitors: Sequence[Monitor]) -> None:
        """Merges monitors with the same labels: adds counts and rates, keeps the worst ratio and latency."""
        for name in _names(one.counters for one in monitors):
            self.counter(scope, name, values, sum(one.counters[name].value for one in monitors if name in one.counters))
        for name in _names(one.windows for one in monitors):
            self.gauge(scope, name, values, sum(one.windows[name].rate for one in monitors if name in one.windows))
        for name in _names(one.gauges for one in monitors):
            numbers = [one.gauges[name]() for one in monitors if name in one.gauges]
            self.gauge(scope, name, values, max(numbers) if name.endswith(("_ratio", "_rate")) else sum(numbers))
        for name in _names(one.latencies for one in monitors):
            self._latency(scope, name, values, [one for one in monitors if name in one.latencies])

    def _latency(self, scope: Scope, name: str, values: Sequence[str], monitors: Sequence[Monitor]) -> None:
        found = [one.latencies[name] for one in monitors]
        ever = [one.histogram() for one in found]
        count, total = sum(one[1] for one in ever), sum(one[2] for one in ever)
        for percent in (50, 95, 99):
            worst = max(one.percentile(percent) for one in found)
            self._milliseconds(scope, name, f"p{percent}", values, worst)
        self._milliseconds(scope, name, "avg", values, total / count if count else 0.0)
        reached = [sum(counts) for counts in zip(*(one[0] for one in ever), strict=True)]
        buckets = [*zip(map(floatToGoString, found[0].bounds), reached, strict=True), ("+Inf", count)]
        family = HistogramMetricFamily(f"{scope.family(name)}_seconds", _help(scope, name), labels=scope.labels)
        self._add(family).add_metric(values, buckets, sum_value=total)

    def _milliseconds(self, scope: Scope, name: str, what: str, values: Sequence[str], seconds: float) -> None:
        text = f"{_help(scope, name)} ({'average' if what == 'avg' else f'{what[1:]}th percentile'}, milliseconds)"
        family = GaugeMetricFamily(f"{scope.family(name)}_{what}_ms", text, labels=scope.labels)
        self._add(family).add_metric(values, seconds * 1000)

    def _add(self, family: _Family) -> _Family:
        return cast(_Family, self._families.setdefault(family.name, family))


def _help(scope: Scope, name: str) -> str:
    return HELP.get((scope.name, name), OWN)


def _names(named: Iterable[Iterable[str]]) -> list[str]:
    return sorted({name for names in named for name in list(names)})
