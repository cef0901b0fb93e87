"""A consumer as its own process, to be killed.

`consumer_child.py consume URL RUN LEASE`: consumes and relays for ever.
`consumer_child.py drain URL RUN LEASE`: consumes and relays until nothing is left, in this one thread.
The handler books each trade in the table `booked`; trade 13 fails in its first two attempts.
"""

from __future__ import annotations

import logging
import sys

from ticklake import BatchInfo, Database, MetadataInfo
from ticklake.consumer import IdempotentConsumer
from ticklake.database import Transaction
from ticklake.topics import Message, Run

IN, OUT, GROUP = "ingestion-topic", "validation-topic", "validation-consumer-group"
failures = iter([ValueError("not yet"), ValueError("not yet")])


def event_id(message: Message) -> str:
    return str(message.payload.simulation_run_id)  # type: ignore[attr-defined]


def book(payload: BatchInfo, tx: Transaction) -> MetadataInfo:
    tx.execute_script(f"INSERT INTO booked VALUES ({payload.tick_start})")
    if payload.tick_start == 13 and (error := next(failures, None)):
        raise error
    return MetadataInfo(written_at_ms=payload.tick_start)


def open_consumer(run: Run, lease: float) -> IdempotentConsumer:
    return IdempotentConsumer(
        run,
        IN,
        GROUP,
        book,
        OUT,
        event_id=event_id,
        batch_size=50,
        claim_timeout=lease,
        relay_lease=lease,
        max_delivery_attempts=1000,
        retry_delay=0.0,
    )


def main(what: str, url: str, run_id: str, lease: str) -> None:
    with Database(url) as database, open_consumer(database.run(run_id), float(lease)) as consumer:
        if what == "drain":
            consumer.run_until_caught_up()
        else:
            consumer.run()


if __name__ == "__main__":
    logging.getLogger("ticklake").setLevel(logging.CRITICAL)
    main(*sys.argv[1:])
