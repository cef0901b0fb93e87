"""A queue with publishers and an indexer as one process, to be killed.

`events_child.py FILE ACKED DELIVERED`: three threads publish `THREAD-NUMBER` in rising order and append what was
acknowledged to ACKED; a fourth pulls batches, appends them to DELIVERED, and marks them done. Each thread goes on
with the first number that is not known to be acknowledged: it may be on disk already.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from pathlib import Path

from ticklake.events import Event, EventBus, IndexerQueue

THREADS = 3


def append(path: str, text: str) -> None:
    """One write: a kill leaves the line whole or not there."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, text.encode())
    os.close(handle)


def acknowledged(path: Path) -> dict[int, int]:
    """The next number of each thread."""
    following = dict.fromkeys(range(THREADS), 0)
    for line in path.read_text().splitlines() if path.exists() else ():
        thread, number = map(int, line.split("-"))
        following[thread] = number + 1
    return following


def publish(bus: EventBus, thread: int, number: int, acked: str) -> None:
    while True:
        count = 1 + number % 7
        bus.publish_many([Event(f"{thread}-{n}", str(thread), n) for n in range(number, number + count)])
        number += count
        append(acked, f"{thread}-{number - 1}\n")


def pull(queue: IndexerQueue, delivered: str) -> None:
    while True:
        if batch := queue.get_next_batch(1):
            append(delivered, f"{batch.sequence} {batch.batch_id} {' '.join(e.event_id for e in batch.events)}\n")
            queue.mark_batch_done(batch.batch_id)


def main(file: str, acked: str, delivered: str) -> None:
    queue, bus = IndexerQueue(file, max_attempts=1_000_000), EventBus()
    queue.subscribe_to_eventbus(bus)
    queue.start()
    following = acknowledged(Path(acked))
    threads = [threading.Thread(target=publish, args=(bus, t, following[t], acked)) for t in range(THREADS)]
    for thread in [*threads, threading.Thread(target=pull, args=(queue, delivered))]:
        thread.start()


if __name__ == "__main__":
    logging.getLogger("ticklake").setLevel(logging.CRITICAL)
    main(*sys.argv[1:])
