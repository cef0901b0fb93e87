"""The indexer queue: sustained rate, time until an event is durable, memory, recovery; beside the seed's figures."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

from bench.processes import own_peak
from bench.results import Figure, Section

from ticklake.events import Event, EventBus, IndexerQueue

THREADS = 4
SECONDS = 60.0
QUEUED = 50_000
WAITING_EVENTS = 500
HOW = (
    f"{THREADS} publisher threads in the process of the queue, events of about 130 bytes. `sustained` lasts"
    f" {SECONDS:.0f} seconds with publishers that do not wait (as fast as it takes them: back-pressure holds them up)"
    " while one thread pulls and finishes batches. `durable` has every publisher wait until its event is on disk, one"
    " event at a time, or 100. The goals are the seed's targets: 10,000 events/s, 0.1 s, 50 MB and 2 s for 50,000."
)


def measure(directory: Path) -> Section:
    return Section("Indexer queue", HOW, list(_figures(directory)))


def _figures(directory: Path) -> Iterator[Figure]:
    yield _sustained(directory / "sustained.db", "sustained, ids in order", lambda: Event.new("t").event_id)
    yield _sustained(directory / "random.db", "sustained, random ids", lambda: str(uuid4()))
    yield from _durable(directory / "durable.db", 1)
    yield from _durable(directory / "many.db", 100)
    yield _memory(directory / "queued.db")
    yield from _recovery(directory / "queued.db")


def _event(event_id: str, number: int) -> Event:
    return Event(event_id, "cell.changed", {"tick": number, "cell": number % 1000, "energy": 1.5})


def _sustained(path: Path, name: str, new_id: Callable[[], str]) -> Figure:
    bus, queue = EventBus(), IndexerQueue(path)
    with queue:
        queue.subscribe_to_eventbus(bus)
        started = time.perf_counter()
        end = started + SECONDS
        puller = threading.Thread(target=_pull, args=(queue, end))
        puller.start()
        _together(lambda: _publish_until(bus, end, new_id))
        puller.join()
    took = time.perf_counter() - started
    return Figure(name, queue.metrics().events_processed_total / took, "events/s", at_least=10_000)


def _publish_until(bus: EventBus, end: float, new_id: Callable[[], str]) -> None:
    number = 0
    while time.perf_counter() < end:
        bus.publish(_event(new_id(), number), wait=False)
        number += 1


def _pull(queue: IndexerQueue, end: float) -> None:
    while time.perf_counter() < end:
        if batch := queue.get_next_batch(0.1):
            queue.mark_batch_done(batch.batch_id)


def _durable(path: Path, at_a_time: int) -> Iterator[Figure]:
    bus, queue, took = EventBus(), IndexerQueue(path), list[float]()

    def publish() -> None:
        for _ in range(WAITING_EVENTS):
            events = [_event(Event.new("t").event_id, number) for number in range(at_a_time)]
            started = time.perf_counter()
            bus.publish_many(events)
            took.append(time.perf_counter() - started)

    with queue:
        queue.subscribe_to_eventbus(bus)
        started = time.perf_counter()
        _together(publish)
        rate = len(took) * at_a_time / (time.perf_counter() - started)
    took.sort()
    yield Figure(f"durable, {at_a_time} at a time", rate, "events/s")
    yield Figure(f"durable, {at_a_time} at a time, half of them within", took[len(took) // 2], "s")
    yield Figure(f"durable, {at_a_time} at a time, 99 % within", took[len(took) * 99 // 100], "s", at_most=0.1)


def _memory(path: Path) -> Figure:
    """In a process of its own: how much its largest size grows while it queues."""
    command = [sys.executable, "-m", "bench.events", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
    return Figure("memory for 50,000 queued events", int(done.stdout) / 1e6, "MB", at_most=50)


def _queue_events(path: Path) -> int:
    """Bytes by which this process grows while it queues 50,000 events."""
    bus, queue = EventBus(), IndexerQueue(path)
    with queue:
        queue.subscribe_to_eventbus(bus)
        bus.publish(_event("warm-up", 0))
        before = own_peak()
        for number in range(QUEUED):
            bus.publish(_event(str(uuid4()), number), wait=False)
    return own_peak() - before


def _recovery(path: Path) -> Iterator[Figure]:
    started, events = time.perf_counter(), 0
    with IndexerQueue(path) as queue:
        batch = queue.get_next_batch(10)
        yield Figure("recovery: first of 50,000 events after", time.perf_counter() - started, "s", at_most=2)
        while batch is not None:
            events += batch.event_count
            queue.mark_batch_done(batch.batch_id)
            batch = queue.get_next_batch(0)
        yield Figure(f"recovery: all {events:,} events after", time.perf_counter() - started, "s", at_most=2)


def _together(work: Callable[[], None]) -> None:
    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    print(_queue_events(Path(sys.argv[1])))
