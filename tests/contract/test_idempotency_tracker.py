"""The tracker of processed batches only saves work: without it everything is indexed and acknowledged all the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ticklake.indexers.batches import TopicBatches
from ticklake.monitoring import Monitor
from ticklake.topics import Run


@pytest.fixture
def monitor() -> Monitor:
    return Monitor("indexer")


@pytest.fixture
def batches(run: Run, maker: Any, monitor: Monitor) -> Iterator[TopicBatches]:
    """Three batch files, announced."""
    maker.run_id = run.id
    with run.writer("batch-topic") as writer:
        writer.send_many(maker.batches(3, ticks=1))
    reader = run.reader("batch-topic", group="g")
    with TopicBatches(run, reader, 300, maker.storage, monitor, run.processed("X")) as opened:
        yield opened


def drop_tracker(run: Run) -> None:
    with run.transaction() as transaction:
        transaction.execute_script("DROP TABLE idempotency_tracking")


def lag(run: Run) -> int:
    (group,) = run.groups.list("batch-topic")
    return group.lag


@pytest.mark.warns("could not be marked")
def test_a_tracker_that_is_gone_holds_up_no_ack(run: Run, batches: TopicBatches, monitor: Monitor) -> None:
    first = batches.poll(1, 0)
    drop_tracker(run)
    batches.done(first)
    assert lag(run) == 2
    others = batches.poll(10, 0)
    assert len(others) == 2
    batches.done(others)
    assert lag(run) == 0
    assert [error.code for error in monitor.errors] == ["MARK_FAILED", "MARK_FAILED"]


def test_with_a_tracker_the_mark_and_the_ack_are_one(run: Run, batches: TopicBatches, monitor: Monitor) -> None:
    found = batches.poll(10, 0)
    batches.done(found)
    assert lag(run) == 0
    assert all(run.processed("X").contains(delivery.file.key) for delivery in found)
    assert len(monitor.errors) == 0
