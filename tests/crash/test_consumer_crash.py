"""Consumers that are killed: at every write one by one, and at random."""

from __future__ import annotations

import os
import random
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from ticklake import BatchInfo, Database
from ticklake.consumer import Outbox
from ticklake.topics import Run

CHILD = Path(__file__).with_name("consumer_child.py")
IN, OUT, GROUP = "ingestion-topic", "validation-topic", "validation-consumer-group"
LEASE = 0.4
POINTS = [
    "consumer.mark",
    "consumer.work",
    "consumer.work:kill:20",
    "consumer.unmark",
    "consumer.outbox",
    "consumer.ack",
    "consumer.commit",
    "consumer.committed",
    "relay.publish",
    "relay.mark",
    "relay.commit",
    "relay.committed",
]
# `test_fault_points` crashes at every statement and commit of a consumer on SQLite, in much less time.
QUICK = {"consumer.work:kill:20", "consumer.commit", "relay.commit"}


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'db'}" if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture
def run(url: str) -> Iterator[Run]:
    with Database(url) as database:
        run = database.run(f"20251014-143025-{uuid4().hex[:8]}")
        with run.transaction() as transaction:
            transaction.execute_script("CREATE TABLE booked (number integer)")
        yield run


def send(run: Run, count: int, first: int = 0) -> None:
    """Every fifth is sent twice, the second time later."""
    trades = [BatchInfo(simulation_run_id=str(UUID(int=n)), tick_start=n) for n in range(first, first + count)]
    with run.writer(IN) as writer:
        writer.send_many(trades + trades[::5])


def start(what: str, url: str, run: Run, fault: str = "") -> subprocess.Popen[bytes]:
    environment = os.environ | {"TICKLAKE_FAULT": fault}
    return subprocess.Popen([sys.executable, str(CHILD), what, url, run.id, str(LEASE)], env=environment)


def booked(run: Run) -> list[int]:
    with run.reading() as view:
        return [row[0] for row in view.execute("SELECT number FROM booked ORDER BY number", {})]


def published(run: Run) -> list[int]:
    messages = run.browse(OUT, limit=100_000)
    return [opened.payload.written_at_ms for m in messages if (opened := m.opened())]  # type: ignore[attr-defined]


def open_work(run: Run) -> int:
    (status,) = run.groups.list(IN) or [None]
    return 1 if status is None else status.lag + Outbox(run, OUT).count_unsent()


def drain(run: Run) -> None:
    """Go on where the killed process has left off, as soon as its claims have expired."""
    open_consumer = runpy.run_path(str(CHILD))["open_consumer"]
    with open_consumer(run, LEASE) as consumer:
        while open_work(run):
            consumer.run_until_caught_up()


@pytest.mark.chaos
@pytest.mark.warns("STUCK_MESSAGE_REASSIGNED", "MESSAGE_FAILED")
@pytest.mark.parametrize(
    "point", [point if point in QUICK else pytest.param(point, marks=pytest.mark.slow) for point in POINTS]
)
def test_a_crash_before_any_write_loses_nothing_and_repeats_nothing(url: str, run: Run, point: str) -> None:
    send(run, 40)
    fault = point if ":" in point else f"{point}:kill"
    assert start("drain", url, run, fault).wait(60) == -signal.SIGKILL, "the point was reached"
    drain(run)
    assert booked(run) == list(range(40))
    assert sorted(published(run)) == list(range(40))
    assert run.dead_letters.count() == 0


PORTION = 200


def compete(url: str, run: Run, kills: int, eventually: Callable[..., None]) -> None:
    """Four consumers at a time, of which one is killed in the middle of every portion of work."""
    rng = random.Random(11)
    children = [start("consume", url, run) for _ in range(4)]
    try:
        for killed in range(kills):
            send(run, PORTION, killed * PORTION)
            enough = killed * PORTION + rng.randrange(PORTION)
            eventually(lambda enough=enough: len(booked(run)) >= enough)
            victim = children.pop(rng.randrange(len(children)))
            victim.kill()
            victim.wait()
            children.append(start("consume", url, run))
        eventually(lambda: open_work(run) == 0)
    finally:
        for child in children:
            child.kill()
            child.wait()
    assert booked(run) == list(range(kills * PORTION))
    assert sorted(published(run)) == list(range(kills * PORTION))
    assert run.dead_letters.count() == 0


@pytest.mark.chaos
@pytest.mark.timeout(240)
def test_competing_consumers_that_are_killed_do_every_event_once(
    url: str, run: Run, eventually: Callable[..., None]
) -> None:
    compete(url, run, 2, eventually)


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.timeout(1200)
def test_competing_consumers_that_are_killed_a_hundred_times_do_every_event_once(
    url: str, run: Run, eventually: Callable[..., None]
) -> None:
    compete(url, run, 100, eventually)
