"""The queue beyond the ten cases: durability, back-pressure, failures, dead letters, pruning."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticklake.database.sqlite import SqliteSchema
from ticklake.database.statements import migrations
from ticklake.errors import (
    BadEvent,
    DatabaseFull,
    DatabaseMoved,
    DatabaseUnusable,
    EventsNotDurable,
    InvalidOption,
    QueueFull,
    QueueInUse,
    QueueLost,
    QueueNotRunning,
)
from ticklake.events import Batch, Event, EventBus, IndexerQueue
from ticklake.events.batches import PACKAGE, Batches, Stored
from ticklake.events.buffer import Buffer, Triggers
from ticklake.events.event import Line, decode, encode, joined
from ticklake.monitoring import Counter

Eventually = Callable[..., None]


def event(number: int) -> Event:
    return Event(f"event-{number:06}", "t", number)


def next_batch(queue: IndexerQueue) -> Batch:
    batch = queue.get_next_batch(30)
    assert batch is not None
    return batch


def payloads(batch: Batch) -> list[Any]:
    return [one.payload for one in batch.events]


class Disk:
    """Stands between a queue and its file: can hold writes up, or refuse them."""

    def __init__(self, queue: IndexerQueue) -> None:
        assert queue._batches is not None
        self._store = queue._batches.store
        self.free = threading.Event()
        self.free.set()
        self.full = False
        self.broken: Exception | None = None
        self.written: list[int] = []
        queue._batches.store = self.store  # type: ignore[method-assign]

    def store(self, lines: Sequence[Line], age: float) -> Stored:
        assert self.free.wait(60)
        if self.full:
            raise DatabaseFull(database="d")
        if self.broken:
            raise self.broken
        self.written.append(len(lines))
        return self._store(lines, age)


@pytest.fixture
def disk(queue: IndexerQueue) -> Disk:
    return Disk(queue)


def test_a_waiting_publisher_returns_when_its_event_is_on_disk_and_not_before(
    queue: IndexerQueue, bus: EventBus, disk: Disk, eventually: Eventually
) -> None:
    disk.free.clear()
    publisher = threading.Thread(target=bus.publish, args=(event(1),))
    publisher.start()
    eventually(lambda: queue.metrics().buffer_size == 1)
    assert publisher.is_alive()
    disk.free.set()
    publisher.join(30)
    assert not publisher.is_alive()
    assert queue.metrics().events_processed_total == 1


def test_a_publisher_that_does_not_wait_returns_at_once(queue: IndexerQueue, bus: EventBus, disk: Disk) -> None:
    disk.free.clear()
    bus.publish(event(1), wait=False)
    assert queue.metrics().buffer_size == 1
    disk.free.set()


def test_an_event_that_came_during_a_write_waits_no_longer_than_others() -> None:
    buffer = Buffer(Triggers(100, 0.5, 1000, 10_000), blocks=True, blocked=Counter(), name="q")
    buffer.add([encode(event(1))])
    assert buffer.wait_due() is not None
    buffer.add([encode(event(2))])
    came = time.monotonic()
    time.sleep(0.4)
    buffer.written(1)
    due = buffer.wait_due()
    assert due is not None
    assert due.age == pytest.approx(time.monotonic() - came, abs=0.05)
    assert due.age < 0.8


def test_events_of_waiting_publishers_share_a_batch_until_it_closes(queue: IndexerQueue, bus: EventBus) -> None:
    for number in range(5):
        bus.publish(event(number))
    assert queue.metrics().pending_batches == 1
    assert queue.get_next_batch(0) is None, "it is still open"
    assert payloads(next_batch(queue)) == list(range(5))


def test_a_batch_of_waiting_publishers_closes_at_100_events(queue: IndexerQueue, bus: EventBus) -> None:
    bus.publish_many([event(number) for number in range(60)])
    bus.publish_many([event(number) for number in range(60, 100)])
    assert queue.get_next_batch(0) is not None


def test_a_spike_becomes_one_large_batch(
    queue: IndexerQueue, bus: EventBus, disk: Disk, eventually: Eventually
) -> None:
    disk.free.clear()
    for number in range(1000):
        bus.publish(event(number), wait=False)
    disk.free.set()
    eventually(lambda: queue.metrics().buffer_size == 0)
    assert sum(disk.written) == 1000
    assert len(disk.written) <= 3
    assert payloads(next_batch(queue))[:3] == [0, 1, 2]


def test_who_publishes_faster_than_the_disk_writes_is_held_up_and_counted(
    queue: IndexerQueue, bus: EventBus, disk: Disk, eventually: Eventually
) -> None:
    disk.free.clear()
    publisher = threading.Thread(target=lambda: [bus.publish(event(n), wait=False) for n in range(1500)])
    publisher.start()
    held_up = queue.monitor.counter("publishers_held_up")
    eventually(lambda: held_up.value == 1)
    assert queue.metrics().buffer_size == 1000
    disk.free.set()
    publisher.join(30)
    eventually(lambda: queue.metrics().events_processed_total == 1500)


def test_a_queue_that_was_told_not_to_wait_says_that_it_is_full(tmp_path: Path, bus: EventBus) -> None:
    queue = IndexerQueue(tmp_path / "q.db", when_full="error")
    with queue:
        queue.subscribe_to_eventbus(bus)
        disk = Disk(queue)
        disk.free.clear()
        bus.publish_many([event(number) for number in range(1000)], wait=False)
        with pytest.raises(QueueFull, match="1000 events are not on disk"):
            bus.publish(event(1000), wait=False)
        assert queue.monitor.snapshot()["publishers_held_up"] == 1
        disk.free.set()
    with queue:
        assert queue.metrics().events_processed_total == 1000, "the others are all there"


@pytest.mark.warns("No space is left")
def test_a_full_disk_is_an_error_for_who_waits_and_loses_nothing(
    queue: IndexerQueue, bus: EventBus, disk: Disk, eventually: Eventually
) -> None:
    disk.full = True
    with pytest.raises(EventsNotDurable, match="No space is left"):
        bus.publish(event(1))
    assert not queue.monitor.healthy
    assert queue.metrics().buffer_size == 1
    disk.full = False
    eventually(lambda: queue.metrics().events_processed_total == 1)
    assert queue.monitor.healthy
    bus.publish(event(1))
    assert queue.metrics().events_duplicate_total == 1


@pytest.mark.warns("MemoryError")
def test_an_error_of_any_kind_ends_neither_the_writing_nor_the_waiting(
    queue: IndexerQueue, bus: EventBus, disk: Disk, eventually: Eventually
) -> None:
    disk.broken = MemoryError()
    with pytest.raises(EventsNotDurable, match="MemoryError"):
        bus.publish(event(1))
    assert not queue.monitor.healthy
    disk.broken = None
    eventually(lambda: queue.metrics().events_processed_total == 1)
    assert queue.monitor.healthy


@pytest.mark.warns("MemoryError")
def test_a_stop_that_meets_an_error_of_any_kind_can_be_repeated(queue: IndexerQueue, disk: Disk) -> None:
    queue.offer([event(1)])
    disk.broken = MemoryError()
    with pytest.raises(EventsNotDurable):
        queue.stop()
    disk.broken = None
    queue.stop()
    assert disk.written == [1]


@pytest.fixture
def small_values(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """SQLite takes 100 kB in one value instead of 1 GB, and a queue makes batches that are as much smaller."""

    def shrink(connection: apsw.Connection) -> None:
        connection.limit(apsw.SQLITE_LIMIT_LENGTH, 100_000)

    monkeypatch.setattr("ticklake.events.queue.MAX_BATCH_BYTES", 50_000, raising=False)
    apsw.connection_hooks.append(shrink)
    yield
    apsw.connection_hooks.remove(shrink)


@pytest.mark.usefixtures("small_values")
def test_events_that_are_too_large_for_one_batch_become_several(tmp_path: Path, bus: EventBus) -> None:
    events = [Event(f"e-{number}", "t", "x" * 1000) for number in range(1000)]
    with IndexerQueue(tmp_path / "queue.db") as queue:
        disk = Disk(queue)
        disk.free.clear()
        queue.subscribe_to_eventbus(bus)
        bus.publish_many(events, wait=False)
        disk.free.set()
        bus.publish(Event("small", "t"))
        found = []
        while len(found) <= len(events):
            batch = next_batch(queue)
            assert len(joined(map(encode, batch.events))) <= 50_000
            found += [one.event_id for one in batch.events]
            queue.mark_batch_done(batch.batch_id)
    assert found == [one.event_id for one in events] + ["small"]


@pytest.mark.usefixtures("small_values")
def test_a_batch_that_grows_while_publishers_wait_stays_small_enough_to_be_stored(
    tmp_path: Path, bus: EventBus
) -> None:
    with IndexerQueue(tmp_path / "queue.db") as queue:
        queue.subscribe_to_eventbus(bus)
        for number in range(6):
            bus.publish(Event(f"e-{number}", "t", "x" * 40_000))
        assert [next_batch(queue).event_count for _ in range(6)] == [1] * 6


@pytest.mark.usefixtures("small_values")
@pytest.mark.warns("No space is left")
def test_a_graceful_stop_writes_all_batches_that_failed_before(tmp_path: Path) -> None:
    queue = IndexerQueue(tmp_path / "queue.db")
    queue.start()
    disk = Disk(queue)
    disk.full = True
    queue.offer([Event(f"e-{number}", "t", "x" * 1000) for number in range(200)])
    with pytest.raises(EventsNotDurable):
        queue.stop()
    disk.full = False
    queue.stop()
    assert sum(disk.written) == 200


def test_an_event_that_is_too_large_is_refused_at_once(
    queue: IndexerQueue, bus: EventBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ticklake.events.event.LARGEST", 10_000, raising=False)
    with pytest.raises(BadEvent, match="more than 10,000 bytes"):
        bus.publish_many([event(1), Event("large", "t", "x" * 10_000)])
    assert queue.metrics().buffer_size == 0
    bus.publish(event(2))
    assert payloads(next_batch(queue)) == [2]


@pytest.mark.warns("No space is left")
def test_a_graceful_stop_that_cannot_write_says_so_and_can_be_repeated(tmp_path: Path, bus: EventBus) -> None:
    queue = IndexerQueue(tmp_path / "q.db")
    queue.start()
    queue.subscribe_to_eventbus(bus)
    disk = Disk(queue)
    bus.publish(event(1), wait=False)
    disk.full = True
    with pytest.raises(EventsNotDurable):
        queue.stop()
    disk.full = False
    queue.stop()
    with queue:
        assert payloads(next_batch(queue)) == [1]


@pytest.mark.warns("stopped without writing up to 101 events")
def test_a_stop_that_is_not_graceful_tells_who_waits(
    queue: IndexerQueue, bus: EventBus, disk: Disk, eventually: Eventually
) -> None:
    disk.free.clear()
    bus.publish_many([event(number) for number in range(100)], wait=False)
    errors: list[Exception] = []

    def publish() -> None:
        try:
            bus.publish(event(100))
        except EventsNotDurable as error:
            errors.append(error)

    waiting = threading.Thread(target=publish)
    waiting.start()
    eventually(lambda: queue.metrics().buffer_size == 101)
    stopping = threading.Thread(target=queue.stop, args=(False,))
    stopping.start()
    waiting.join(30)
    disk.free.set()
    stopping.join(30)
    assert "was stopped without writing" in str(errors[0])


def test_an_event_for_a_queue_that_does_not_run_is_refused(tmp_path: Path, bus: EventBus) -> None:
    queue = IndexerQueue(tmp_path / "q.db")
    queue.subscribe_to_eventbus(bus)
    with pytest.raises(QueueNotRunning):
        bus.publish(event(1), wait=False)
    queue.start()
    bus.publish(event(1))
    queue.stop()
    queue.stop()
    for act in (lambda: bus.publish(event(2), wait=False), queue.get_next_batch, lambda: queue.mark_batch_done("b")):
        with pytest.raises(QueueNotRunning):
            act()


def test_the_names_of_all_folders_that_a_queue_makes_are_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    fsync = os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda file: (synced.append(Path(f"/proc/self/fd/{file}").readlink()), fsync(file))
    )
    with IndexerQueue(tmp_path / "a" / "b" / "c" / "q.db"):
        assert {tmp_path, tmp_path / "a", tmp_path / "a" / "b"} <= set(synced)


def test_a_file_has_one_queue_at_a_time(queue: IndexerQueue) -> None:
    second = IndexerQueue(queue.path)
    with pytest.raises(QueueInUse):
        second.start()
    queue.stop()
    second.start()
    second.stop()


def test_a_place_that_cannot_hold_a_file_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(DatabaseUnusable):
        IndexerQueue(tmp_path / "file" / "q.db").start()
    (tmp_path / "text.db").write_text("no database at all, but long enough to be looked at as one" * 100)
    queue = IndexerQueue(tmp_path / "text.db")
    with pytest.raises(DatabaseUnusable):
        queue.start()
    with pytest.raises(DatabaseUnusable):  # and not: in use
        queue.start()


def test_done_is_done_once_and_for_all(queue: IndexerQueue, bus: EventBus) -> None:
    bus.publish(event(1))
    assert not queue.mark_batch_done("no such batch")
    batch = next_batch(queue)
    assert queue.mark_batch_done(batch.batch_id)
    assert queue.mark_batch_done(batch.batch_id)
    assert not queue.mark_batch_failed(batch.batch_id, "too late")
    queue.stop()
    queue.start()
    assert queue.get_next_batch(0) is None
    assert queue.metrics().pending_batches == 0


def test_two_who_pull_get_different_batches(queue: IndexerQueue, bus: EventBus) -> None:
    bus.publish_many([event(number) for number in range(100)])
    bus.publish_many([event(number) for number in range(100, 200)])
    assert [payloads(next_batch(queue))[0] for _ in range(2)] == [0, 100]
    assert queue.get_next_batch(0) is None


def test_who_waits_for_a_batch_is_woken(queue: IndexerQueue, bus: EventBus) -> None:
    found: list[Batch | None] = []
    puller = threading.Thread(target=lambda: found.append(queue.get_next_batch(60)))
    puller.start()
    bus.publish_many([event(number) for number in range(100)])
    puller.join(30)
    assert found[0] is not None


@pytest.mark.warns("DEAD_BATCH")
def test_a_batch_that_keeps_failing_goes_to_the_dead_letters_with_its_error(tmp_path: Path, bus: EventBus) -> None:
    with IndexerQueue(tmp_path / "q.db", max_attempts=3) as queue:
        queue.subscribe_to_eventbus(bus)
        bus.publish_many([event(number) for number in range(100)])
        bus.publish_many([event(number) for number in range(100, 200)])
        outcomes = []
        for attempt in (1, 2, 3):
            batch = next_batch(queue)
            assert (payloads(batch)[0], batch.attempts) == (0, attempt), "it stays first in line"
            outcomes.append(queue.mark_batch_failed(batch.batch_id, ValueError("no such table")))
        assert outcomes == [False, False, True]
        (dead,) = queue.dead_batches()
        assert (dead.attempts, dead.error, dead.event_count) == (3, "ValueError: no such table", 100)
        assert dead.events is not None
        assert payloads(next_batch(queue))[0] == 100
        assert queue.replay(dead.batch_id)
        assert not queue.replay(dead.batch_id)
        again = next_batch(queue)
        assert (again.batch_id, again.sequence, again.attempts) == (dead.batch_id, dead.sequence, 1)
        assert queue.mark_batch_done(again.batch_id)


@pytest.mark.warns("DEAD_BATCH")
def test_a_batch_that_its_worker_dies_of_every_time_is_given_up(tmp_path: Path, bus: EventBus) -> None:
    queue = IndexerQueue(tmp_path / "q.db", max_attempts=2)
    queue.subscribe_to_eventbus(bus)
    with queue:
        bus.publish(event(1))
        next_batch(queue)
    with queue:
        next_batch(queue)
    with queue:
        assert queue.get_next_batch(0) is None
        assert [dead.error for dead in queue.dead_batches()] == ["delivered 2 times and never finished"]
        assert queue.metrics().pending_batches == 0


@pytest.mark.warns("DEAD_BATCH")
@pytest.mark.parametrize("data", [b"\xff\x00", b"{}\n", b'["too", "short"]\n', b"[" * 100_000])
def test_a_batch_that_cannot_be_read_neither_blocks_nor_loops(queue: IndexerQueue, bus: EventBus, data: bytes) -> None:
    assert queue._batches is not None
    queue._batches.store([Line("bad", data)], 1.0)
    bus.publish_many([event(number) for number in range(100)])
    assert payloads(next_batch(queue))[0] == 0
    (dead,) = queue.dead_batches()
    assert dead.events is None
    assert "cannot be stored" in dead.error


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


def opened(path: Path, clock: Clock) -> Batches:
    batches = Batches(path, batch_size=100, batch_bytes=1_000_000, timeout=0.5, max_attempts=5, clock=clock)
    batches.recover()
    return batches


def test_a_clock_that_is_set_back_changes_no_order(tmp_path: Path) -> None:
    clock = Clock()
    batches = opened(tmp_path / "q.db", clock)
    for number in range(3):
        batches.store([encode(event(number))], 0.5)
        clock.now -= 3600
    batches.close()
    batches = opened(tmp_path / "q.db", clock)
    batches.store([encode(event(3))], 0.5)
    found = [batches.next().batch for _ in range(4)]
    assert [payloads(batch) for batch in found if batch] == [[0], [1], [2], [3]]
    batches.close()


def test_pruning_forgets_what_is_old_and_done_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ticklake.events.batches.CHUNK", 2)
    clock = Clock()
    batches = opened(tmp_path / "q.db", clock)
    for number in range(7):
        batches.store([encode(event(number))], 0.5)
        clock.now += 100
    claimed = [batches.next().batch for _ in range(4)]
    for batch in claimed[:3]:
        assert batch is not None
        assert batches.finish(batch.batch_id)
    assert batches.prune(550) == (2, 2)
    assert batches.prune(0) == (1, 1)
    assert [batches.store([encode(event(number))], 0.5).new for number in range(7)] == [1, 1, 1, 0, 0, 0, 0]
    newest = [batch for _ in range(6) if (batch := batches.next().batch)]
    assert [payloads(batch)[0] for batch in newest] == [4, 5, 6, 0, 1, 2]
    assert [batch.sequence for batch in newest] == [5, 6, 7, 8, 9, 10], "no number is given twice"
    batches.close()


@pytest.fixture
def older(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A queue of the version before owners and the order by number: its times are those of a clock that was ahead."""
    path, ahead = tmp_path / "older.db", time.time() + 1_000_000
    schema = SqliteSchema(path, "indexer-queue")
    with monkeypatch.context() as before:
        before.setattr("ticklake.database.schema.migrations", lambda *names: migrations(*names)[:2])
        schema.prepare(PACKAGE)
    with schema.transaction() as transaction:
        for number, status in enumerate(("done", "processing", "pending", "pending")):
            values = {"id": f"b-{number}", "at": ahead + number, "data": encode(event(number)).text, "status": status}
            transaction.execute("INSERT INTO pending_batches VALUES (:id, :at, 1, :data, :status, 0)", values)
            transaction.execute("INSERT INTO batch_sequence (batch_id) VALUES (:id)", {"id": f"b-{number}"})
            event_id = event(number).event_id
            values = {"event": event_id, "id": f"b-{number}", "at": time.time()}
            transaction.execute("INSERT INTO processed_events VALUES (:event, :id, :at)", values)
    schema.close()
    return path


def test_a_queue_of_an_older_version_goes_on_where_it_was(older: Path, bus: EventBus) -> None:
    with IndexerQueue(older) as queue:
        queue.subscribe_to_eventbus(bus)
        assert queue.metrics().pending_batches == 3
        bus.publish_many([event(number) for number in range(5)])
        batches = [next_batch(queue) for _ in range(4)]
        assert [payloads(batch) for batch in batches] == [[1], [2], [3], [4]]
        assert [batch.sequence for batch in batches] == [2, 3, 4, 5]
        for batch in batches:
            queue.mark_batch_done(batch.batch_id)
        assert queue.prune(0) == (5, 5)


def test_a_sequence_survives_that_everything_was_pruned(tmp_path: Path) -> None:
    clock = Clock()
    for expected in (1, 2, 3):
        batches = opened(tmp_path / "q.db", clock)
        batches.store([encode(event(1))], 0.5)
        batch = batches.next().batch
        assert batch is not None
        assert batch.sequence == expected
        batches.finish(batch.batch_id)
        clock.now += 10
        assert batches.prune(1) == (1, 1)
        batches.close()


@pytest.mark.parametrize("hours", [1, 24 * 365])
def test_a_clock_that_was_ahead_once_does_not_stop_pruning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    monkeypatch.setattr("ticklake.events.batches.CHUNK", 2)
    clock = Clock()
    batches = opened(tmp_path / "q.db", clock)
    clock.now += hours * 3600
    for number in range(3):
        worked_off(batches, number)
    clock.now -= hours * 3600
    for number in range(3, 8):
        assert worked_off(batches, number).created_at == clock.now, "the time of a batch is that of the clock"
    worked_off(batches, 8)
    clock.now += 1000
    worked_off(batches, 9)
    assert batches.prune(500) == (9, 9)
    assert batches.prune(0) == (0, 0)
    clock.now += 1
    assert batches.prune(0) == (1, 1)
    batches.close()


def test_what_was_stored_last_by_a_clock_that_was_ahead_is_kept_as_if_it_were_new(tmp_path: Path) -> None:
    clock = Clock()
    batches = opened(tmp_path / "q.db", clock)
    worked_off(batches, 0)
    clock.now += 1_000_000
    worked_off(batches, 1)
    clock.now -= 900_000
    assert batches.prune(10) == (1, 1)
    batches.close()


def worked_off(batches: Batches, number: int) -> Batch:
    batches.store([encode(event(number))], 0.5)
    batch = batches.next().batch
    assert batch is not None
    assert payloads(batch) == [number]
    assert batches.finish(batch.batch_id)
    return batch


def test_keys_that_are_no_text_become_text(queue: IndexerQueue, bus: EventBus) -> None:
    bus.publish(Event("e", "t", {1: "a", None: {True: "b", "x": [{2.5: "c"}]}}))
    assert payloads(next_batch(queue)) == [{"1": "a", "null": {"true": "b", "x": [{"2.5": "c"}]}}]


# A file that is moved away and comes back


@contextmanager
def away(queue: IndexerQueue) -> Iterator[None]:
    elsewhere = queue.path.with_name("away.db")
    queue.path.rename(elsewhere)
    try:
        yield
    finally:
        elsewhere.rename(queue.path)


@pytest.mark.warns("moved|is gone|another file")
def test_an_event_that_was_stored_while_the_file_was_away_is_delivered_once(
    queue: IndexerQueue, bus: EventBus, eventually: Eventually
) -> None:
    bus.publish(event(0))
    queue.mark_batch_done(next_batch(queue).batch_id)
    with away(queue), pytest.raises(EventsNotDurable):
        bus.publish(event(1))
    eventually(lambda: queue.monitor.healthy and queue.metrics().buffer_size == 0)
    batch = next_batch(queue)
    assert payloads(batch) == [1]
    assert queue.mark_batch_done(batch.batch_id)
    assert (queue.get_next_batch(0), queue.metrics().pending_batches) == (None, 0)
    bus.publish(event(2))
    assert payloads(next_batch(queue)) == [2]


def test_a_batch_that_was_claimed_while_the_file_was_away_comes_first(tmp_path: Path, bus: EventBus) -> None:
    with IndexerQueue(tmp_path / "q.db", max_attempts=1) as queue:
        queue.subscribe_to_eventbus(bus)
        for start in (0, 100, 200):
            bus.publish_many([event(number) for number in range(start, start + 100)])
        in_hand = next_batch(queue)
        with away(queue), pytest.raises(DatabaseMoved):
            queue.get_next_batch(0)
        batch = next_batch(queue)
        assert (payloads(batch)[0], batch.attempts) == (100, 1), "nobody has had it before"
        assert payloads(next_batch(queue))[0] == 200
        assert queue.get_next_batch(0) is None, "the first one is in somebody's hands"
        assert queue.metrics().pending_batches == 0
        assert queue.mark_batch_done(in_hand.batch_id)


def test_work_that_is_given_back_or_replayed_while_the_file_is_away_is_not_lost(
    queue: IndexerQueue, bus: EventBus
) -> None:
    bus.publish(event(0))
    batch = next_batch(queue)
    with away(queue), pytest.raises(DatabaseMoved):
        queue.mark_batch_failed(batch.batch_id, "no such table")
    assert payloads(next_batch(queue)) == [0]


# Two owners


def break_in(queue: IndexerQueue) -> IndexerQueue:
    """An operator takes the lock of a queue for a leftover. The next one to open the queue is let in."""
    Path(f"{queue.path}-lock").unlink()
    second = IndexerQueue(queue.path)
    second.start()
    return second


@pytest.mark.warns("was opened by another process", "stopped without writing up to 1 events")
def test_an_owner_whose_queue_was_opened_by_another_one_stores_nothing_more(queue: IndexerQueue, bus: EventBus) -> None:
    bus.publish(event(0))
    second = break_in(queue)
    try:
        batch = next_batch(second)
        assert payloads(batch) == [0]
        with pytest.raises(EventsNotDurable, match="was opened by another process"):
            bus.publish(event(1))
        assert not queue.monitor.healthy
        for act in (
            queue.get_next_batch,
            lambda: queue.mark_batch_done(batch.batch_id),
            lambda: queue.mark_batch_failed(batch.batch_id, "no"),
            lambda: queue.replay(batch.batch_id),
            lambda: queue.assign([batch], "run"),
            lambda: queue.prune(0),
        ):
            with pytest.raises(QueueLost):
                act()
        assert second.mark_batch_done(batch.batch_id)
        second.offer([event(1)]).wait()
        assert payloads(next_batch(second)) == [1]
    finally:
        second.stop()
        queue.stop(graceful=False)


def test_events_are_never_added_to_a_batch_that_somebody_has(queue: IndexerQueue, bus: EventBus) -> None:
    bus.publish(event(0))
    assert queue._batches is not None
    # As if another owner had claimed it, while it is open here.
    with queue._batches._schema.transaction() as transaction:
        transaction.execute_script("UPDATE pending_batches SET status = 'processing'")
    bus.publish(event(1))
    assert payloads(next_batch(queue)) == [1]


@pytest.mark.parametrize("options", [{"when_full": "drop"}, {"max_attempts": 0}])
def test_an_impossible_option_is_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        IndexerQueue(tmp_path / "q.db", **options)


def test_a_negative_age_is_refused(queue: IndexerQueue) -> None:
    with pytest.raises(InvalidOption):
        queue.prune(-1)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.lists(json_values, max_size=5))
def test_what_json_can_say_comes_back_as_it_was(values: list[Any]) -> None:
    events = [Event(f"e{place}", "t\u2028", value) for place, value in enumerate(values)]
    assert decode(joined(encode(one) for one in events)) == events


nested: list[Any] = []
for _ in range(100_000):
    nested = [nested]


@pytest.mark.parametrize(
    "bad",
    [
        Event("", "t"),
        Event("e", " "),
        Event("e\n", "t"),
        Event("e" * 256, "t"),
        Event("e", "t", object()),
        Event("e", "t", float("nan")),
        Event("e", "t", b"bytes"),
        Event("e", "t", nested),
        Event("e", "t", timestamp=float("inf")),
        Event("e", "t", timestamp="now"),  # type: ignore[arg-type]
        Event(7, "t"),  # type: ignore[arg-type]
        "no event",
        Event("e", "t", {1: "a", "1": "b"}),
        Event("e", "t", [{"x": ({True: "a", "true": "b"},)}]),
        Event("e", "t", {None: "a", "null": "b"}),
        Event("e", "t", {1.5: "a", "1.5": "b"}),
    ],
    ids=range(16),
)
def test_what_is_no_event_is_refused_before_anything_is_accepted(
    queue: IndexerQueue, bus: EventBus, bad: Any, eventually: Eventually
) -> None:
    with pytest.raises(BadEvent):
        bus.publish_many([event(1), bad], wait=False)
    assert queue.metrics().buffer_size == 0
    bus.publish(event(2))


def test_new_events_have_ids_in_order() -> None:
    assert Event.new("t").event_id[:10] <= Event.new("t", 1).event_id[:10]
