"""Idempotent consumers, some of which die, and messages that nobody can handle, each in its own way.

In the end every good message has done its work once and published its result once, every bad one is a dead letter, and
nothing waits behind them.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Collection
from pathlib import Path
from uuid import UUID

from crew import Crew, wait
from pipeline import Server
from report import Findings, Script

from ticklake import BatchInfo, Database, MetadataInfo
from ticklake.consumer import IdempotentConsumer, Outbox
from ticklake.database import Transaction
from ticklake.topics import Run

ACTS = {"kill": 3, "term": 1, "zombie": 1}
IN, OUT, GROUP = "ingestion-topic", "validation-topic", "bookkeeper"
MESSAGES, LEASE, ATTEMPTS, PATIENCE = 200, 1.0, 3, 40.0
BAD = ("raises", "duplicate", "syntax")
BAD_ON_A_SERVER = ("timeout", "too large")
"""A statement that takes too long is the fault of the message that wants it, and no outage of the server."""
TROUBLE = {
    "duplicate": "INSERT INTO booked VALUES (-1)",
    "syntax": "INSERT INTO no_such_table VALUES (1)",
    "timeout": "SET LOCAL statement_timeout = 50; SELECT pg_sleep(5)",
    "too large": "SELECT repeat('x', 1200000000) || repeat('x', 1200000000)",
}


def book(payload: BatchInfo, transaction: Transaction) -> MetadataInfo:
    """`storage_key` says what is wrong with a message."""
    transaction.execute_script(f"INSERT INTO booked VALUES ({payload.tick_start})")
    if payload.storage_key == "raises":
        raise ValueError("nobody can handle this")
    if payload.storage_key:
        transaction.execute_script(TROUBLE[payload.storage_key])
    return MetadataInfo(written_at_ms=payload.tick_start)


def consume(url: str, run_id: str) -> None:
    with Database(url) as database, open_consumer(database.run(run_id)) as consumer:
        signal.signal(signal.SIGTERM, lambda *_: consumer.stop())
        consumer.run()


def open_consumer(run: Run) -> IdempotentConsumer:
    return IdempotentConsumer(
        run, IN, GROUP, book, OUT, event_id=lambda message: str(UUID(int=message.payload.tick_start)),  # type: ignore[attr-defined]
        batch_size=20, claim_timeout=LEASE, relay_lease=LEASE, max_delivery_attempts=ATTEMPTS, retry_delay=0.05,
    )  # fmt: skip


def play(
    root: Path, url: str, run_id: str, seed: int, acts: int, *, server: Server | None = None, only: Collection[str] = ()
) -> Findings:
    rng, findings, crew = random.Random(seed), Findings(), Crew(root)
    kinds = BAD + (BAD_ON_A_SERVER if server else ())
    bad = {number: kinds[place % len(kinds)] for place, number in enumerate(rng.sample(range(MESSAGES), 12))}
    script = Script(ACTS, rng, only)
    # A death costs an attempt, so what is killed too often would be a dead letter without being bad.
    acts = min(acts, ATTEMPTS - 1)
    with Database(url) as database:
        run = database.run(run_id)
        _prepare(run)
        for name in ("one", "two"):
            crew.start(name, consume, url, run_id)
        try:
            with run.writer(IN) as writer:
                for number in range(MESSAGES):
                    writer.send(BatchInfo(tick_start=number, storage_key=bad.get(number, "")))
                    if script and acts and rng.random() < 4 * acts / MESSAGES:
                        acts -= 1
                        _act(crew, script.draw(), rng, findings, url, run_id)
            _wait(crew, run, findings, seed, url, run_id)
        finally:
            crew.close()
        _check(run, bad, findings, seed, crew)
    findings.figures.update(messages=MESSAGES, bad_messages=len(bad))
    return findings


def _prepare(run: Run) -> None:
    with run.transaction() as transaction:
        transaction.execute_script("CREATE TABLE booked (number integer PRIMARY KEY)")
        transaction.execute_script("INSERT INTO booked VALUES (-1)")


def _act(crew: Crew, name: str, rng: random.Random, findings: Findings, url: str, run_id: str) -> None:
    findings.acts[name] += 1
    victim = rng.choice(list(crew.processes))
    if name == "zombie":
        crew.freeze(victim, 1.2 * LEASE)
        return
    crew.end(victim, signal.SIGKILL if name == "kill" else signal.SIGTERM)
    crew.start(victim, consume, url, run_id)


def _wait(crew: Crew, run: Run, findings: Findings, seed: int, url: str, run_id: str) -> None:
    def lag() -> int:
        return sum(group.lag for group in run.groups.list(IN))

    def done() -> bool:
        for name in [name for name in crew.processes if not crew.alive(name)]:
            crew.end(name)
            crew.start(name, consume, url, run_id)
        # A consumer that has not started yet has no group, and so no lag.
        return bool(run.groups.list(IN)) and not lag() and not Outbox(run, OUT).count_unsent()

    if not wait(PATIENCE, done, every=0.1):
        findings.complaints.append(
            f"seed {seed}: {lag()} messages wait after {PATIENCE:.0f} s, {run.dead_letters.count()} dead letters: "
            f"{crew.last_error()}"
        )


def _check(run: Run, bad: dict[int, str], findings: Findings, seed: int, crew: Crew) -> None:
    good = sorted({*range(MESSAGES)} - bad.keys())
    with run.reading() as view:
        booked = sorted(number for (number,) in view.execute("SELECT number FROM booked", {}) if number >= 0)
    results = (stored.opened() for stored in run.browse(OUT, limit=10 * MESSAGES))
    published = sorted(one.payload.written_at_ms for one in results if one)  # type: ignore[attr-defined]
    letters = run.dead_letters.count()
    for what, found in (("worked off", booked), ("published", published)):
        if found != good:
            findings.complaints.append(f"seed {seed}: {len(found)} {what}, not the {len(good)} good ones, each once")
    if letters != len(bad):
        kinds = ", ".join(sorted({*bad.values()}))
        findings.complaints.append(f"seed {seed}: {letters} dead letters of {len(bad)} bad messages ({kinds})")
