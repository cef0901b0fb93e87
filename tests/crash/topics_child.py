"""A writer or a reader as its own process, to be killed.

`topics_child.py write URL RUN NUMBER COUNT`: sends COUNT messages in small batches and writes their ids to stdout.
`topics_child.py read URL RUN LEASE`: claims and acknowledges for ever; writes the id of each accepted ack to stdout.
`topics_child.py hold URL RUN`: claims one message, says so, and waits to be ended.
"""

from __future__ import annotations

import logging
import signal
import sys

from ticklake import BatchInfo, Database
from ticklake.topics import Run

BATCH = 50


def say(lines: list[str]) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def write(run: Run, number: int, count: int) -> None:
    with run.writer("t") as writer:
        for start in range(0, count, BATCH):
            ids = writer.send_many(
                BatchInfo(simulation_run_id=str(number), tick_start=tick) for tick in range(start, start + BATCH)
            )
            say(ids)


def read(run: Run, lease: float) -> None:
    with run.reader("t", group="g", claim_timeout=lease, max_delivery_attempts=1000) as reader:
        while True:
            messages = reader.poll_many(32, 1)
            accepted = reader.ack_many(messages)
            say([message.id for message, mine in zip(messages, accepted, strict=True) if mine])


def hold(run: Run) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with run.reader("t", group="g", claim_timeout=3600) as reader:
        message = reader.receive()
        say([message.id])
        while True:
            signal.pause()


if __name__ == "__main__":
    logging.getLogger("ticklake").setLevel(logging.ERROR)
    what, url, run_id, *rest = sys.argv[1:]
    with Database(url) as database:
        if what == "write":
            write(database.run(run_id), int(rest[0]), int(rest[1]))
        elif what == "read":
            read(database.run(run_id), float(rest[0]))
        else:
            hold(database.run(run_id))
