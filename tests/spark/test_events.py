"""The event indexer: what the queue has acknowledged is in the table `events`, each event once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from ticklake.events import Event, EventBus, IndexerQueue
from ticklake.indexers.events import EventIndexer

SOME = [Event(f"event-{number}", "moved", {"to": [number, 2]}, 1000.0 + number) for number in range(250)]


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[IndexerQueue]:
    queue = IndexerQueue(tmp_path / "queue.db")
    queue.start()
    yield queue
    queue.stop()


def publish(queue: IndexerQueue, events: list[Event]) -> None:
    bus = EventBus()
    queue.subscribe_to_eventbus(bus)
    for event in events[:-1]:
        bus.publish(event, wait=False)
    bus.publish(events[-1], wait=True)


def drain(queue: IndexerQueue, maker: Any, spark: Any) -> EventIndexer:
    indexer = EventIndexer(queue, maker.lake, maker.run_id, lambda: spark, until_drained=True)
    indexer.run()
    return indexer


def events_in(maker: Any) -> list[dict[str, Any]]:
    rows = DeltaTable(maker.lake.directory(maker.run_id, "events")).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: (row["batch_number"], row["position"]))


def test_events_become_rows_in_their_order(queue: IndexerQueue, maker: Any, spark: Any) -> None:
    publish(queue, SOME)
    indexer = drain(queue, maker, spark)
    rows = events_in(maker)
    assert [row["event_id"] for row in rows] == [event.event_id for event in SOME]
    assert (rows[7]["type"], rows[7]["timestamp"], json.loads(rows[7]["payload"])) == ("moved", 1007.0, {"to": [7, 2]})
    assert indexer.monitor.counter("events_written").value == 250
    assert queue.metrics().pending_batches == 0


def test_a_batch_that_was_committed_but_not_marked_done_is_not_written_twice(
    tmp_path: Path, maker: Any, spark: Any
) -> None:
    first = IndexerQueue(tmp_path / "queue.db")
    first.start()
    publish(first, SOME)

    class DiesBeforeMarking(EventIndexer):
        def _index(self, batches: Any, flusher: Any) -> None:
            self._queue.mark_batch_done = lambda batch_id: False  # type: ignore[method-assign]
            super()._index(batches, flusher)

    DiesBeforeMarking(first, maker.lake, maker.run_id, lambda: spark, until_drained=True).run()
    first.stop()

    again = IndexerQueue(tmp_path / "queue.db")
    again.start()
    drain(again, maker, spark)
    again.stop()
    assert [row["event_id"] for row in events_in(maker)] == [event.event_id for event in SOME]


def test_it_goes_on_with_what_comes_later(queue: IndexerQueue, maker: Any, spark: Any) -> None:
    publish(queue, SOME[:100])
    drain(queue, maker, spark)
    publish(queue, SOME[50:])
    drain(queue, maker, spark)
    assert [row["event_id"] for row in events_in(maker)] == [event.event_id for event in SOME]
