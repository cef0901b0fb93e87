"""The event indexer: what the queue has acknowledged is in the table `events`, each event once."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

from ticklake.cli import cli
from ticklake.completeness.completeness import Completeness
from ticklake.config import load
from ticklake.errors import (
    EventQueueShared,
    EventRunMissing,
    FlushFailed,
    OneEventFile,
    OtherEventBatch,
    OtherEventQueue,
    TickLakeError,
    TwoEventIndexers,
)
from ticklake.events import Event, EventBus, IndexerQueue
from ticklake.indexers.events import TABLE, EventIndexer
from ticklake.lake.read.catalog import Catalog
from ticklake.node.node import Node

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
    rows = DeltaTable(maker.folder("events")).to_pyarrow_table().to_pylist()
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


@pytest.mark.warns("Event batch", "DEAD_BATCH")
def test_a_batch_that_takes_the_job_down_fails_alone(queue: IndexerQueue, maker: Any, spark: Any) -> None:
    publish(queue, SOME)

    class DiesOfTheSecond(EventIndexer):
        def _flush(self, flusher: Any, slices: Any) -> Any:
            if any(one.source.sequence == 2 for one in slices):
                raise FlushFailed(table="events", reason="a worker died")
            return super()._flush(flusher, slices)

    indexer = DiesOfTheSecond(queue, maker.lake, maker.run_id, lambda: spark, until_drained=True)
    indexer.run()
    found = {row["batch_number"] for row in events_in(maker)}
    assert 1 in found and 2 not in found
    assert indexer.monitor.counter("batches_processed").value == len(found)
    assert queue.metrics().pending_batches == 0


def test_it_goes_on_with_what_comes_later(queue: IndexerQueue, maker: Any, spark: Any) -> None:
    publish(queue, SOME[:100])
    drain(queue, maker, spark)
    publish(queue, SOME[50:])
    drain(queue, maker, spark)
    assert [row["event_id"] for row in events_in(maker)] == [event.event_id for event in SOME]


def test_a_commit_names_the_batches_that_it_added(queue: IndexerQueue, maker: Any, spark: Any) -> None:
    publish(queue, SOME)
    drain(queue, maker, spark)
    commits = DeltaTable(maker.folder("events")).history()
    named = [json.loads(commit["ticklake.sources"]) for commit in commits if "ticklake.sources" in commit]
    sources = sorted((one for commit in named for one in commit), key=lambda source: source["batch_numbers"])
    assert sources
    assert [source["batch_numbers"] for source in sources] == [[n, n] for n in range(1, len(sources) + 1)]
    assert all(source["event_batch"] and "file" not in source for source in sources)


def other_events(prefix: str, count: int = 7) -> list[Event]:
    return [Event(f"{prefix}-{number}", "moved", {"to": number}, 1.0) for number in range(count)]


@pytest.mark.parametrize("made_anew", [False, True])
def test_another_queue_for_the_same_run_is_refused_and_keeps_its_events(
    made_anew: bool, queue: IndexerQueue, maker: Any, spark: Any, tmp_path: Path
) -> None:
    publish(queue, SOME)
    drain(queue, maker, spark)
    path = queue.path if made_anew else tmp_path / "other.db"
    queue.stop()
    for file in queue.path.parent.glob("queue.db*") if made_anew else ():
        file.unlink()
    with IndexerQueue(path) as other:
        publish(other, other_events("other"))
        with pytest.raises(OtherEventQueue, match="events") as refused:
            drain(other, maker, spark)
        assert str(path) in str(refused.value)
        assert other.metrics().pending_batches == 1
    assert [row["event_id"] for row in events_in(maker)] == [event.event_id for event in SOME]


def test_a_queue_from_a_backup_does_not_lose_what_it_numbers_again(
    queue: IndexerQueue, maker: Any, spark: Any, tmp_path: Path
) -> None:
    publish(queue, SOME[:10])
    drain(queue, maker, spark)
    queue.stop()
    shutil.copy(queue.path, tmp_path / "backup.db")
    queue.start()
    publish(queue, SOME[10:20])
    drain(queue, maker, spark)
    with IndexerQueue(tmp_path / "backup.db") as restored:
        publish(restored, other_events("after the backup"))
        with pytest.raises(OtherEventBatch, match="batch 2"):
            drain(restored, maker, spark)
    with IndexerQueue(tmp_path / "backup.db") as restored:
        assert restored.metrics().pending_batches == 1
    assert [row["event_id"] for row in events_in(maker)] == [event.event_id for event in SOME[:20]]


def test_a_table_from_before_queues_had_ids_goes_on(queue: IndexerQueue, maker: Any, spark: Any) -> None:
    maker.lake.ledger(maker.run_id, TABLE)
    publish(queue, SOME)
    drain(queue, maker, spark)
    assert [row["event_id"] for row in events_in(maker)] == [event.event_id for event in SOME]


def verdict_on_events(maker: Any, queue: Path | None) -> tuple[str, list[Any]]:
    found = Completeness(maker.run_id, maker.storage, Catalog(str(maker.lake.root)), events=queue).verify()
    (table,) = found.tables
    return str(table.verdict), table.coverage.missing


def test_a_queue_that_goes_on_with_the_next_run_leaves_both_complete(
    queue: IndexerQueue, maker: Any, spark: Any
) -> None:
    first, second = maker.run_id, "20251015-143025-550e8400"
    for run_id, events in ((first, SOME[:150]), (second, SOME[150:])):
        maker.run_id = run_id
        maker.metadata()
        publish(queue, events)
        drain(queue, maker, spark)
    publish(queue, other_events("waits"))
    queue.stop()
    for run_id, compared in ((first, "complete"), (second, "running")):
        maker.run_id = run_id
        assert verdict_on_events(maker, None) == ("complete", [])
        assert verdict_on_events(maker, queue.path)[0] == compared


def test_a_run_is_not_proved_by_another_queue(queue: IndexerQueue, maker: Any, spark: Any, tmp_path: Path) -> None:
    maker.metadata()
    publish(queue, SOME)
    drain(queue, maker, spark)
    with IndexerQueue(tmp_path / "other.db") as other:
        publish(other, other_events("other"))
    assert verdict_on_events(maker, tmp_path / "other.db")[0] == "incomplete"


def ticklake(*words: object) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-c", "from ticklake.cli import main; main()", *map(str, words))
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.usefixtures("spark")
def test_a_command_drains_a_queue_and_another_proves_it(queue: IndexerQueue, maker: Any) -> None:
    publish(queue, SOME)
    queue.stop()
    maker.metadata()
    lake = ("--lake", maker.lake_folder)
    drain = ("index-events", maker.run_id, "--events", queue.path, *lake, "--master", "local[2]", "--json")
    for rows in (250, 0):
        done = CliRunner().invoke(cli, [str(word) for word in drain])
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["rows"] == rows
    assert [row["event_id"] for row in events_in(maker)] == [event.event_id for event in SOME]
    places = ("--storage", maker.storage.url, *lake)
    proved = ticklake("verify", maker.run_id, *places, "--events", queue.path, "--json")
    (table,) = json.loads(proved.stdout)["tables"]
    assert (table["table"], table["rows"], table["coverage"]["verdict"]) == ("events", 250, "complete")


def test_a_file_that_is_no_queue_is_one_line(maker: Any, tmp_path: Path) -> None:
    done = ticklake("index-events", maker.run_id, "--events", tmp_path / "none.db", "--lake", maker.lake_folder)
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
    file.write_text(CONFIGURATION.format(queue=queue.path, lake=maker.lake_folder, run_id=run_id))
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
    file.write_text(CONFIGURATION.format(queue=tmp_path / "queue.db", lake=maker.lake_folder, run_id=""))
    with pytest.raises(EventRunMissing, match=r"event-indexer.*Set its run_id"):
        Node(load(file))


TWO = """
resources {{
  a {{ class = EventQueue, path = "a.db" }}
  b {{ class = EventQueue, path = "{second}" }}
  lake {{ class = Lake, path = lake }}
}}
services {{
  one {{ class = EventIndexer, resources {{ e = "events-read:a" }}, options {{ run_id = "20251014-143025-550e8400" }} }}
  two {{ class = EventIndexer, resources {{ e = "events-read:{reads}" }}, options {{ run_id = "{run_id}" }} }}
}}
"""
RUN, OTHER_RUN = "20251014-143025-550e8400", "20251015-143025-550e8400"


@pytest.mark.parametrize(
    ("second", "reads", "run_id", "error"),
    [
        ("b.db", "b", RUN, TwoEventIndexers),
        ("b.db", "a", OTHER_RUN, EventQueueShared),
        ("./a.db", "b", OTHER_RUN, OneEventFile),
    ],
)
def test_a_configuration_in_which_event_queues_would_get_in_each_others_way_is_refused(
    second: str, reads: str, run_id: str, error: type[TickLakeError], tmp_path: Path
) -> None:
    file = tmp_path / "node.conf"
    file.write_text(TWO.format(second=second, reads=reads, run_id=run_id))
    with pytest.raises(error) as refused:
        Node(load(file))
    assert "node.conf" in str(refused.value)


def test_a_configuration_may_have_two_queues_for_two_runs(tmp_path: Path) -> None:
    file = tmp_path / "node.conf"
    file.write_text(TWO.format(second="b.db", reads="b", run_id=OTHER_RUN))
    assert Node(load(file)).runs() == [RUN, OTHER_RUN]
