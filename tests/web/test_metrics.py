"""`/metrics` over real HTTP."""

from __future__ import annotations

import re
from collections.abc import Callable

import httpx
import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from ticklake.insights import Backlogs
from ticklake.metric_names import METRICS
from ticklake.monitoring import Monitor
from ticklake.node.node import Node
from ticklake.topics import Database
from ticklake.web.api.prometheus import Families
from ticklake.web.feeds import lag
from ticklake.web.feeds.sampling import Sampler

NAME = re.compile(r"[a-z][a-z0-9_]*")


def families(client: httpx.Client) -> dict[str, Metric]:
    found = list(text_string_to_metric_families(client.get("/metrics").text))
    assert len({family.name for family in found}) == len(found), "no family twice"
    return {family.name: family for family in found}


def value(client: httpx.Client, sample: str, **labels: str) -> float:
    (found,) = [
        one.value
        for family in families(client).values()
        for one in family.samples
        if one.name == sample and labels.items() <= one.labels.items()
    ]
    return found


def test_it_is_what_prometheus_reads(client: httpx.Client, eventually: Callable[..., None]) -> None:
    eventually(lambda: value(client, "ticklake_service_ticks_written_total", service="persistence-service") > 0)
    assert client.get("/metrics").headers["content-type"].startswith("text/plain; version=")
    documented = {metric.scope.family(metric.name) for metric in METRICS}
    ours = [family for name, family in families(client).items() if name.startswith("ticklake_")]
    for family in ours:
        assert NAME.fullmatch(family.name)
        assert family.documentation.strip().endswith((".", ")"))
        base = re.sub(r"_(p\d\d_ms|avg_ms|seconds)$", "", family.name)
        assert family.name in documented or base in documented, family.name
        for sample in family.samples:
            assert set(sample.labels) <= {"service", "state", "run", "topic", "group", "queue", "name", "version", "le"}


def test_it_says_which_state_each_service_is_in(client: httpx.Client) -> None:
    assert value(client, "ticklake_service_state", service="simulation", state="running") == 1
    client.post("/api/services/simulation/pause")
    assert value(client, "ticklake_service_state", service="simulation", state="running") == 0
    assert value(client, "ticklake_service_state", service="simulation", state="paused") == 1


def test_the_lag_of_a_group_comes_from_the_store_with_no_consumer_alive(
    node: Node, serve: Callable[..., httpx.Client], eventually: Callable[..., None]
) -> None:
    (database,) = node.databases
    database.run(node.run_id).reader("batch-topic", group="absent").close()
    published = node.services["persistence-service"].monitor.counter("notifications_sent")
    eventually(lambda: published.value >= 3)
    client = serve(node)
    labels = {"run": node.run_id, "topic": "batch-topic", "group": "absent"}
    assert value(client, "ticklake_group_lag", **labels) >= 3
    assert value(client, "ticklake_group_oldest_age_seconds", **labels) > 0
    assert value(client, "ticklake_node_store_up") == 1


def test_the_store_is_asked_seldom_however_often_somebody_scrapes(node: Node) -> None:
    now = [0.0]
    looks = Backlogs(lambda: node.databases)
    sampler = Sampler(lambda: lag.sample(node, node.databases, looks.look()), 5, clock=lambda: now[0])
    first = sampler.latest()
    assert sampler.latest() is first
    now[0] = 5.0
    assert sampler.latest() is not first


def test_a_store_that_does_not_answer_is_said_and_nothing_is_guessed(
    node: Node, eventually: Callable[..., None]
) -> None:
    published = node.services["persistence-service"].monitor.counter("notifications_sent")
    eventually(lambda: published.value > 0)
    node.stop()
    sample = lag.sample(node, node.databases, Backlogs(lambda: node.databases).look())
    assert (sample.up, sample.groups, len(sample.away)) == (False, [], 1)


def test_what_closed_readers_and_writers_have_counted_stays_counted(tmp_path) -> None:
    from ticklake import BatchInfo

    with Database(f"sqlite:///{tmp_path / 'db'}") as database:
        run = database.run("20251014-143025-550e8400")
        for _ in range(3):
            with run.writer("batch-topic") as writer:
                writer.send(BatchInfo(simulation_run_id=run.id))
        (end,) = run.ends()
        assert (end.topic, end.group) == ("batch-topic", None)
        assert sum(one.counter("messages_sent").value for one in end.monitors) == 3
        assert sum(one.percentiles("write_latency").count for one in end.monitors) == 3
        assert len(end.monitors) == 1


def counted(run) -> dict[str, float]:
    """What Prometheus reads of a run's readers and writers."""
    from ticklake.metric_names import READER, WRITER

    found = Families()
    for end in run.ends():
        labels = (run.id, end.topic) if end.group is None else (run.id, end.topic, end.group)
        found.monitors(WRITER if end.group is None else READER, labels, end.monitors)
    samples = [sample for family in found for sample in family.samples]
    return {one.name: one.value for one in samples if one.name.endswith(("_total", "_count", "_sum"))}


def test_what_forgotten_readers_and_writers_have_counted_stays_counted(tmp_path) -> None:
    import gc

    from ticklake import BatchInfo

    with Database(f"sqlite:///{tmp_path / 'db'}") as database:
        run = database.run("20251014-143025-550e8400")
        writer = run.writer("batch-topic")
        writer.send_many([BatchInfo(simulation_run_id=run.id, tick_start=at) for at in range(5)])
        reader = run.reader("batch-topic", group="indexer")
        reader.ack_many(reader.poll_many(5, 5))
        before = counted(run)
        assert (
            before["ticklake_writer_messages_sent_total"] == before["ticklake_reader_messages_acknowledged_total"] == 5
        )
        del reader, writer
        gc.collect()
        assert counted(run) == before


def test_messages_are_counted_when_they_are_committed_also_by_a_closed_writer(tmp_path) -> None:
    from ticklake import BatchInfo

    with Database(f"sqlite:///{tmp_path / 'db'}") as database:
        run = database.run("20251014-143025-550e8400")
        with run.transaction() as transaction:
            with run.writer("batch-topic") as writer:
                writer.send(BatchInfo(simulation_run_id=run.id), connection=transaction)
            assert counted(run)["ticklake_writer_messages_sent_total"] == 0
        assert counted(run)["ticklake_writer_messages_sent_total"] == 1


def test_a_writer_that_is_closed_during_a_scrape_is_not_counted_twice(tmp_path) -> None:
    """A scrape that counted it twice would be followed by one that counts less."""
    from ticklake import BatchInfo
    from ticklake.metric_names import WRITER

    with Database(f"sqlite:///{tmp_path / 'db'}") as database:
        run = database.run("20251014-143025-550e8400")
        with run.writer("batch-topic") as first:
            first.send(BatchInfo(simulation_run_id=run.id))
        second = run.writer("batch-topic")
        second.send(BatchInfo(simulation_run_id=run.id, tick_start=1))
        (end,) = run.ends()
        second.close()
        found = Families()
        found.monitors(WRITER, (run.id, end.topic), end.monitors)
        sent = {sample.name: sample.value for family in found for sample in family.samples}
        assert sent["ticklake_writer_messages_sent_total"] == 2
        assert counted(run)["ticklake_writer_messages_sent_total"] == 2


def test_monitors_of_the_same_labels_are_one_series() -> None:
    from ticklake.metric_names import READER

    monitors = [Monitor(name) for name in ("one", "two")]
    for number, monitor in enumerate(monitors, start=1):
        monitor.counter("messages_received").add(number)
        monitor.percentiles("claim_latency").record(number)
        monitor.gauge("claim_conflict_ratio", lambda number=number: number / 10)
    families_ = Families()
    families_.monitors(READER, ("run", "topic", "group"), monitors)
    values = {sample.name: sample.value for family in families_ for sample in family.samples}
    assert values["ticklake_reader_messages_received_total"] == 3
    assert values["ticklake_reader_claim_conflict_ratio"] == 0.2
    assert values["ticklake_reader_claim_latency_seconds_count"] == 2
    assert values["ticklake_reader_claim_latency_p99_ms"] == pytest.approx(2500)


def test_latencies_are_histograms_that_can_be_added_up_over_nodes() -> None:
    from ticklake.metric_names import READER

    monitors = [Monitor(name) for name in ("one", "two")]
    seconds = [0.00001, 0.003, 0.3, 0.3, 2.0, 10_000.0]
    for monitor in monitors:
        for one in seconds:
            monitor.percentiles("claim_latency").record(one)
    families_ = Families()
    families_.monitors(READER, ("run", "topic", "group"), monitors)
    (histogram,) = (one for one in families_ if one.name == "ticklake_reader_claim_latency_seconds")
    buckets = {float(one.labels["le"]): one.value for one in histogram.samples if one.name.endswith("_bucket")}
    assert len(buckets) > 20
    assert buckets == {bound: 2 * sum(one <= bound for one in seconds) for bound in buckets}
    assert buckets[float("inf")] == 2 * len(seconds)
