"""The event indexer: what the queue has acknowledged is in the table `events`, each event once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from ticklake.config import load
from ticklake.errors import EventRunMissing
from ticklake.events import Event, EventBus, IndexerQueue
from ticklake.indexers.events import EventIndexer
from ticklake.node import Node

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


def test_a_commit_names_the_batches_that_it_added(queue: IndexerQueue, maker: Any, spark: Any) -> None:
    publish(queue, SOME)
    drain(queue, maker, spark)
    commit = DeltaTable(maker.lake.directory(maker.run_id, "events")).history(1)[0]
    sources = json.loads(commit["ticklake.sources"])
    assert [source["batch_numbers"] for source in sources] == [[n, n] for n in range(1, len(sources) + 1)]
    assert all(source["event_batch"] and "file" not in source for source in sources)


def ticklake(*words: object) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-c", "from ticklake.cli import main; main()", *map(str, words))
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_command_drains_a_queue_and_another_proves_it(queue: IndexerQueue, maker: Any) -> None:
    publish(queue, SOME)
    queue.stop()
    maker.metadata()
    lake = ("--lake", maker.lake.root)
    for written in (250, 0):
        done = ticklake("index-events", maker.run_id, "--events", queue.path, *lake, "--master", "local[2]", "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["rows"] == written
    assert [row["event_id"] for row in events_in(maker)] == [event.event_id for event in SOME]
    places = ("--storage", maker.storage.url, *lake)
    proved = ticklake("verify", maker.run_id, *places, "--events", queue.path, "--json")
    (table,) = json.loads(proved.stdout)["tables"]
    assert (table["table"], table["rows"], table["coverage"]["verdict"]) == ("events", 250, "complete")


def test_a_file_that_is_no_queue_is_one_line(maker: Any, tmp_path: Path) -> None:
    done = ticklake("index-events", maker.run_id, "--events", tmp_path / "none.db", "--lake", maker.lake.root)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "There is no event queue at" in done.stderr


CONFIGURATION = """
resources {{
  event-queue {{ class = EventQueue, path = "{queue}" }}
  lake {{ class = Lake, path = "{lake}" }}
}}
services {{
  event-indexer {{
    resources {{ events = "events-read:event-queue", lake = "lake-write:lake" }}
    options {{ until_caught_up = true{run_id} }}
  }}
}}
"""


def test_a_configuration_drains_a_queue(queue: IndexerQueue, maker: Any, spark: Any, tmp_path: Path) -> None:
    publish(queue, SOME)
    queue.stop()
    file = tmp_path / "node.conf"
    run_id = f', run_id = "{maker.run_id}"'
    file.write_text(CONFIGURATION.format(queue=queue.path, lake=maker.lake.root, run_id=run_id))
    node = Node(load(file))
    assert node.runs() == [maker.run_id]
    (service,) = node.services.values()
    service.start()
    assert service.join(120) and service.error is None
    assert [row["event_id"] for row in events_in(maker)] == [event.event_id for event in SOME]
    # The queue is closed again: another process may have it.
    queue.start()
    assert queue.metrics().pending_batches == 0


def test_a_configuration_must_say_which_run_events_belong_to(maker: Any, tmp_path: Path) -> None:
    file = tmp_path / "node.conf"
    file.write_text(CONFIGURATION.format(queue=tmp_path / "queue.db", lake=maker.lake.root, run_id=""))
    with pytest.raises(EventRunMissing, match=r"event-indexer.*Give it run_id"):
        Node(load(file))
