"""The ten cases of the queue's own specification, by their names."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from uuid import UUID

import pytest

from ticklake.events import Batch, Event, EventBus, IndexerQueue, QueueMetrics
from ticklake.events import batches as batches_module


def event(number: int) -> Event:
    return Event(f"event-{number:06}", "cell.changed", {"number": number})


def numbers(batch: Batch) -> list[int]:
    return [one.payload["number"] for one in batch.events]


def look(path: Path, query: str) -> list[tuple[object, ...]]:
    """From outside, after the queue has been stopped: one SQLite library a file and process."""
    code = f"import sqlite3; print(sqlite3.connect({str(path)!r}).execute({query!r}).fetchall())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return eval(done.stdout)


def drained(queue: IndexerQueue, count: int) -> list[Batch]:
    """Batches until `count` events have come."""
    found: list[Batch] = []
    while sum(batch.event_count for batch in found) < count:
        batch = queue.get_next_batch(30)
        assert batch is not None
        found.append(batch)
    return found


def test_t01_queue_initializes_with_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "new" / "queue.db"
    with IndexerQueue(str(path)):
        assert path.exists()
    columns = "SELECT name, type, \"notnull\", dflt_value, pk FROM pragma_table_info('{}')"
    assert look(path, columns.format("pending_batches")) == [
        ("batch_id", "TEXT", 0, None, 1),
        ("created_at", "REAL", 1, None, 0),
        ("event_count", "INTEGER", 1, None, 0),
        ("events_data", "BLOB", 1, None, 0),
        ("status", "TEXT", 1, "'pending'", 0),
        ("attempts", "INTEGER", 0, "0", 0),
    ]
    assert look(path, columns.format("processed_events")) == [
        ("event_id", "TEXT", 0, None, 1),
        ("batch_id", "TEXT", 1, None, 0),
        ("processed_at", "REAL", 1, None, 0),
    ]
    assert look(path, "PRAGMA journal_mode") == [("wal",)]
    indexes = look(path, "SELECT name FROM sqlite_master WHERE type = 'index' AND name LIKE 'idx_%' ORDER BY name")
    assert indexes == [("idx_pending_status",), ("idx_processed_id",)]
    with pytest.raises(subprocess.CalledProcessError):
        look(path, "INSERT INTO pending_batches VALUES ('b', 1, 1, x'', 'lost', 0)")


def test_t02_subscribe_to_eventbus(queue: IndexerQueue, bus: EventBus) -> None:
    other = EventBus()
    subscription = queue.subscribe_to_eventbus(other)
    assert isinstance(subscription, str)
    other.publish(event(1))
    bus.publish(event(2))
    assert [n for batch in drained(queue, 2) for n in numbers(batch)] == [1, 2]
    assert other.unsubscribe(subscription)
    other.publish(event(3))
    assert queue.metrics().events_processed_total == 2


def test_t03_batch_creation_at_threshold_100(
    queue: IndexerQueue, bus: EventBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(99):
        bus.publish(event(number), wait=False)
    assert queue.metrics().buffer_size == 99
    started = time.monotonic()
    bus.publish(event(99), wait=False)
    batch = queue.get_next_batch(30)
    assert batch is not None
    assert (batch.event_count, batch.status, numbers(batch)) == (100, "processing", list(range(100)))
    assert UUID(batch.batch_id).version == 4
    assert time.monotonic() - started < 0.4, "it did not wait for the 500 ms"


def test_t04_timeout_flush_500ms(queue: IndexerQueue, bus: EventBus) -> None:
    started = time.monotonic()
    bus.publish(event(1), wait=False)
    batch = queue.get_next_batch(30)
    took = time.monotonic() - started
    assert batch is not None
    assert numbers(batch) == [1]
    assert 0.45 < took < 10


def test_t05_crash_recovery(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    child = (
        "import os, signal, sys\n"
        "from ticklake.events import Event, EventBus, IndexerQueue\n"
        "queue, bus = IndexerQueue(sys.argv[1]), EventBus()\n"
        "queue.start(); queue.subscribe_to_eventbus(bus)\n"
        "bus.publish_many([Event(f'event-{n:06}', 't', {'number': n}) for n in range(250)])\n"
        "assert queue.get_next_batch(30).events[0].payload == {'number': 0}\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run([sys.executable, "-c", child, str(path)], check=False).returncode == -9
    with IndexerQueue(path) as queue:
        found = drained(queue, 250)
        assert [n for batch in found for n in numbers(batch)] == list(range(250))
        assert [batch.attempts for batch in found] == [2] + [1] * (len(found) - 1)


def test_t06_idempotency_deduplication(queue: IndexerQueue, bus: EventBus) -> None:
    bus.publish_many([event(1), event(2), event(1)])
    bus.publish(event(2))
    bus.publish(event(3))
    assert [n for batch in drained(queue, 3) for n in numbers(batch)] == [1, 2, 3]
    metrics = queue.metrics()
    assert (metrics.events_processed_total, metrics.events_duplicate_total) == (3, 2)
    queue.stop()
    queue.start()
    bus.publish(event(1))
    assert queue.metrics().events_duplicate_total == 3, "also after a restart"


def test_t07_strict_fifo_ordering(queue: IndexerQueue, bus: EventBus) -> None:
    def publish(thread: int) -> None:
        for number in range(500):
            bus.publish(Event(f"{thread}-{number}", str(thread), {"number": number}), wait=number % 50 == 0)

    threads = [threading.Thread(target=publish, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    batches = drained(queue, 2000)
    assert [batch.sequence for batch in batches] == sorted(batch.sequence for batch in batches)
    assert [batch.created_at for batch in batches] == sorted({batch.created_at for batch in batches})
    for thread in range(4):
        got = [one.payload["number"] for batch in batches for one in batch.events if one.type == str(thread)]
        assert got == list(range(500))


def test_t08_performance_10k_under_1s(queue: IndexerQueue, bus: EventBus) -> None:
    events = [event(number) for number in range(10_000)]
    started = time.process_time()
    for start in range(0, len(events), 500):
        bus.publish_many(events[start : start + 500])
    assert queue.metrics().events_processed_total == 10_000
    assert time.process_time() - started < 1, "seconds of this process's own time: the machine may be busy"


def test_t09_sqlite_transaction_atomicity(
    queue: IndexerQueue, bus: EventBus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(point: str) -> None:
        if point == "events.commit":
            raise batches_module.BadEvent(event="e", reason="the disk is full")

    monkeypatch.setattr(batches_module.faults, "reach", full)
    with pytest.raises(Exception, match="the disk is full"):
        queue._batches.store([batches_module.Line("a", b"{}\n")])  # type: ignore[union-attr]
    queue.stop()
    path = tmp_path / "data" / "queue.db"
    assert look(path, "SELECT count(*) FROM processed_events") == [(0,)]
    assert look(path, "SELECT count(*) FROM pending_batches") == [(0,)]
    assert look(path, "SELECT count(*) FROM batch_sequence") == [(0,)]
    assert queue.metrics().pending_batches == 0


def test_t10_graceful_shutdown(tmp_path: Path, bus: EventBus) -> None:
    path = tmp_path / "queue.db"
    queue = IndexerQueue(path)
    queue.start()
    queue.subscribe_to_eventbus(bus)
    for number in range(42):
        bus.publish(event(number), wait=False)
    queue.stop(graceful=True)
    assert queue.metrics() == QueueMetrics(0, 0, 42, 0, queue.metrics().avg_flush_latency_ms)
    with IndexerQueue(path) as again:
        assert [n for batch in drained(again, 42) for n in numbers(batch)] == list(range(42))
