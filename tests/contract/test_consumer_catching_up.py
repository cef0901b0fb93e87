"""A consumer has caught up if its group has no messages left in the store, not if a poll finds none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest

from ticklake import BatchInfo
from ticklake.consumer import IdempotentConsumer, Relay, patience
from ticklake.database import Transaction
from ticklake.database.names import schema_name
from ticklake.errors import DatabaseUnavailable, LockNotAvailable
from ticklake.topics import Run, reader
from ticklake.topics.envelope import Envelope, new_message_id

TOPIC, GROUP = "t", "g"
on_postgres = pytest.mark.parametrize("database_url", ["postgres"], indirect=True)


class Done:
    """A handler that remembers the messages whose work was committed."""

    def __init__(self, run: Run, before: Callable[[int, Transaction], object] = lambda *_: None) -> None:
        self.numbers: list[int] = []
        self._run, self._before = run, before

    def __call__(self, payload: BatchInfo, tx: Transaction) -> None:
        self._before(payload.tick_start, tx)
        tx.after_commit(lambda: self.numbers.append(payload.tick_start))


@pytest.fixture
def consume(run: Run) -> Iterator[Callable[..., IdempotentConsumer]]:
    opened: list[IdempotentConsumer] = []

    def make(handler: object, **options: object) -> IdempotentConsumer:
        opened.append(IdempotentConsumer(run, TOPIC, GROUP, handler, **{"retry_delay": 0.01} | options))  # type: ignore[arg-type]
        return opened[-1]

    yield make
    for one in opened:
        one.close()


def send(run: Run, count: int) -> None:
    with run.writer(TOPIC) as writer:
        writer.send_many(BatchInfo(tick_start=number) for number in range(count))


def lag(run: Run) -> int:
    (group,) = run.groups.list(TOPIC)
    return group.lag


@contextmanager
def locked_group(run: Run, url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(url) as connection:
        connection.execute(f'SELECT 1 FROM "{schema_name(run.id)}".topic_groups FOR UPDATE'.encode())
        yield connection


@pytest.mark.warns("MESSAGE_FAILED")
def test_what_failed_and_comes_again_is_waited_for_and_counted_once(run: Run, consume) -> None:
    send(run, 5)
    failures = iter([ValueError("once")])

    def fail_once(number: int, _: Transaction) -> None:
        if number == 3 and (error := next(failures, None)):
            raise error

    done = Done(run, fail_once)
    assert consume(done).run_until_caught_up() == 5
    assert sorted(done.numbers) == [0, 1, 2, 3, 4]
    assert lag(run) == 0


@pytest.mark.warns("MESSAGE_FAILED", "DEAD_LETTER")
def test_a_message_that_becomes_a_dead_letter_counts_as_settled(run: Run, consume) -> None:
    send(run, 3)

    def fail(number: int, _: Transaction) -> None:
        if number == 1:
            raise ValueError("always")

    consumer = consume(Done(run, fail), max_delivery_attempts=2)
    assert consumer.process() == 2, "the failed one comes again"
    assert consumer.run_until_caught_up() == 1
    assert [(group.lag, group.dead_letters) for group in run.groups.list(TOPIC)] == [(0, 1)]


@pytest.mark.warns("DEAD_LETTER")
def test_messages_after_many_that_cannot_be_decoded_are_processed(
    run: Run, consume, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A poll that finds only such messages for a while returns none."""
    monkeypatch.setattr(reader, "GRACE_SECONDS", 0.0)
    with run.writer(TOPIC) as writer:
        writer.forward([Envelope(new_message_id(1), 1, b"\xff\xff broken") for _ in range(30)])
    send(run, 3)
    done = Done(run)
    assert consume(done, batch_size=2).run_until_caught_up() == 33
    assert done.numbers == [0, 1, 2]
    assert lag(run) == 0


def test_messages_that_another_consumer_holds_are_waited_for(run: Run, consume, eventually) -> None:
    send(run, 3)
    done = Done(run)
    with run.reader(TOPIC, group=GROUP) as other, ThreadPoolExecutor(1) as pool:
        (held,) = other.poll_many(1, 5)
        caught_up = pool.submit(consume(done).run_until_caught_up)
        eventually(lambda: done.numbers == [1, 2])
        assert not caught_up.done()
        assert other.ack(held)
        assert caught_up.result(60) == 2


def test_catching_up_can_be_stopped(run: Run, consume, eventually) -> None:
    send(run, 1)
    with run.reader(TOPIC, group=GROUP, claim_timeout=0) as other, ThreadPoolExecutor(1) as pool:
        assert other.poll(5) is not None
        consumer = consume(Done(run))
        caught_up = pool.submit(consumer.run_until_caught_up)
        eventually(lambda: consumer._reader.monitor.counter("claim_attempts").value > 0)
        consumer.stop()
        assert caught_up.result(60) == 0


@on_postgres
@pytest.mark.warns("Consumer g")
def test_a_connection_that_is_lost_at_work_ends_no_catching_up(run: Run, consume, postgres_url: str) -> None:
    send(run, 50)
    killed: list[int] = []

    def lose_connection(_: int, tx: Transaction) -> None:
        if not killed:
            ((pid,),) = tx.execute("SELECT pg_backend_pid()", {})
            killed.append(pid)
            with psycopg.connect(postgres_url, autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s, 10000)", (pid,))
        tx.execute("SELECT 1", {})

    done = Done(run, lose_connection)
    assert consume(done).run_until_caught_up() == 50
    assert sorted(done.numbers) == list(range(50))


@on_postgres
def test_a_group_that_is_locked_for_a_while_ends_no_catching_up(
    run: Run, consume, postgres_url: str, eventually
) -> None:
    send(run, 5)
    done = Done(run)
    consumer = consume(done)
    with ThreadPoolExecutor(1) as pool, locked_group(run, postgres_url) as locker:
        caught_up = pool.submit(consumer.run_until_caught_up)
        eventually(lambda: consumer._reader.monitor.counter("read_errors").value > 1)
        assert not caught_up.done()
        locker.rollback()
        assert caught_up.result(60) == 5
    assert done.numbers == [0, 1, 2, 3, 4]


@on_postgres
def test_an_outage_that_does_not_end_is_raised(
    run: Run, consume, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "PATIENCE_SECONDS", 0.5)
    send(run, 5)
    consumer = consume(Done(run))
    with locked_group(run, postgres_url), pytest.raises(LockNotAvailable):
        consumer.run_until_caught_up()
    assert consumer.run_until_caught_up() == 5


@on_postgres
def test_a_relay_that_is_locked_out_for_a_while_publishes_its_results(
    run: Run, consume, postgres_url: str, eventually
) -> None:
    """It waits for its baton longer than the lease of another relay would last."""
    send(run, 3)
    assert consume(lambda payload, _: payload, publishes="out").process() == 3
    with Relay(run, "out", lease=0.1) as relay, ThreadPoolExecutor(1) as pool:
        with locked_group(run, postgres_url) as locker:
            drained = pool.submit(relay.drain)
            eventually(lambda: relay._batons.monitor.counter("read_errors").value > 2)
            locker.rollback()
        assert drained.result(60) == 0
    assert len(run.browse("out")) == 3


def test_patience_ends_a_minute_after_the_last_progress() -> None:
    now = 0.0

    def pause(seconds: float) -> None:
        nonlocal now
        now += seconds

    held = patience.Patience(clock=lambda: now, pause=pause)
    error = DatabaseUnavailable(database="d", reason="away")
    for _ in range(100):
        held.wait(error)
    held.renew()
    for _ in range(120):
        held.wait(error)
    now += 200
    held.wait(error)
    now += 61
    with pytest.raises(DatabaseUnavailable):
        held.wait(error)
