"""The way from an outbox into its topic, on every database."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from ticklake import MetadataInfo
from ticklake.consumer import IdempotentConsumer, Outbox, Relay
from ticklake.consumer.outbox import Attempts, Row
from ticklake.consumer.relay import _batch, _pause
from ticklake.database import Transaction
from ticklake.errors import BatonPassedOver, InvalidName, InvalidOption, ReservedTopic, TransactionAborted
from ticklake.topics import GroupStatus, Run
from ticklake.topics.store import baton_id

TOPIC = "validation-topic"


@pytest.fixture
def outbox(run: Run) -> Outbox:
    return Outbox(run, TOPIC)


@pytest.fixture
def relays(run: Run) -> Iterator[Callable[..., Relay]]:
    opened: list[Relay] = []

    def make(**options: float) -> Relay:
        opened.append(Relay(run, TOPIC, **options))  # type: ignore[arg-type]
        return opened[-1]

    yield make
    for relay in opened:
        relay.close()


def add(run: Run, outbox: Outbox, *numbers: int) -> None:
    with run.transaction() as transaction:
        results = [outbox.result(f"{number:032x}", "g", 0, MetadataInfo(written_at_ms=number)) for number in numbers]
        outbox.add(results, transaction)


def published(run: Run) -> list[int]:
    messages = run.browse(TOPIC, limit=10_000)
    return [opened.payload.written_at_ms for m in messages if (opened := m.opened())]  # type: ignore[attr-defined]


def test_what_is_in_the_outbox_comes_to_the_topic_in_order_and_in_batches(run: Run, outbox: Outbox, relays) -> None:
    add(run, outbox, *range(25))
    relay = relays(batch_size=10)
    assert [relay.relay() for _ in range(4)] == [10, 10, 5, 0]
    assert published(run) == list(range(25))
    assert outbox.count_unsent() == 0


def test_nothing_is_published_before_its_transaction_commits(run: Run, outbox: Outbox, relays) -> None:
    relay = relays()
    with pytest.raises(ZeroDivisionError), run.transaction() as transaction:
        outbox.add([outbox.result(f"{1:032x}", "g", 0, MetadataInfo())], transaction)
        raise ZeroDivisionError
    assert relay.relay() == 0
    assert published(run) == []


def test_a_waiting_relay_is_woken_and_does_not_poll(
    run: Run, outbox: Outbox, relays, eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    for dialect in ("sqlite", "postgres"):
        monkeypatch.setattr(f"ticklake.database.{dialect}.wakeups.SAFETY_SECONDS", 600.0)
    relay = relays(lease=1800)
    assert relay.relay() == 0
    looks = []
    attempts = relay._outbox.attempts
    relay._outbox.attempts = lambda: looks.append(1) or attempts()  # type: ignore[func-returns-value,method-assign]
    sent: list[int] = []
    thread = threading.Thread(target=lambda: sent.append(relay.relay(120)))
    thread.start()
    eventually(lambda: len(looks) == 2)  # before and after it began to listen
    add(run, outbox, 1)
    thread.join(60)
    assert sent == [1]
    assert len(looks) in (3, 4)  # one hint, or one more that came during the look


def test_one_relay_at_a_time_and_the_next_takes_over_when_it_closes(run: Run, outbox: Outbox, relays) -> None:
    first, second = relays(), relays()
    add(run, outbox, 1)
    assert first.relay() == 1
    add(run, outbox, 2)
    assert second.relay(0.05) == 0
    (held,) = run.claims.list(topic=f"outbox/{TOPIC}")
    assert held.group == "relay"
    first.close()
    assert second.relay(60) == 1
    assert published(run) == [1, 2]


@pytest.mark.warns("STUCK_MESSAGE_REASSIGNED")
def test_a_relay_that_hangs_loses_its_turn_and_notices(run: Run, outbox: Outbox, relays, pass_time) -> None:
    first, second = relays(lease=10), relays(lease=10)
    assert first.relay() == 0
    pass_time(11)
    add(run, outbox, 1)
    assert second.relay() == 1
    add(run, outbox, 2)
    first._renewed = 0.0  # a third of the lease is over
    assert first.relay() == 0
    assert second.relay() == 1


def test_a_relay_that_has_not_noticed_yet_publishes_nothing_twice(run: Run, outbox: Outbox, relays) -> None:
    add(run, outbox, *range(100))
    first, second = relays(batch_size=7), relays(batch_size=7)
    second._leads = lambda deadline: True  # type: ignore[method-assign]

    def empty(relay: Relay) -> None:
        while outbox.count_unsent():
            relay.relay()

    threads = [threading.Thread(target=empty, args=(relay,)) for relay in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert published(run) == list(range(100))


FROZEN = """
import os, signal, sys
from ticklake import Database
from ticklake.consumer import Outbox, Relay
from ticklake.consumer import outbox

def freeze(self, rows, connection):
    print("frozen", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)

Outbox.mark_sent = freeze
outbox.STILL_SECONDS = float(sys.argv[3])
with Database(sys.argv[1]) as database, Relay(database.run(sys.argv[2]), "validation-topic", lease=0.5) as relay:
    relay.relay(60)
"""


@contextmanager
def frozen_relay(url: str, run: Run, still_seconds: float) -> Iterator[None]:
    """Another process that stands still with messages in its hands."""
    command = [sys.executable, "-c", FROZEN, url, run.id, str(still_seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"frozen\n"
            yield
        finally:
            child.kill()


@pytest.mark.warns("STUCK_MESSAGE_REASSIGNED")
@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
def test_a_relay_that_waits_for_one_that_stands_still_can_be_stopped(
    run: Run, outbox: Outbox, relays, database_url: str, eventually: Callable[..., None]
) -> None:
    add(run, outbox, 1, 2)
    with frozen_relay(database_url, run, 3600):
        relay = relays(lease=0.5)
        thread = threading.Thread(target=relay.run)
        thread.start()
        eventually(lambda: relay.monitor.errors.recorded.value > 0)
        relay.stop()
        thread.join(30)
        assert not thread.is_alive()
        assert published(run) == []


@pytest.mark.warns("STUCK_MESSAGE_REASSIGNED")
@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
def test_the_server_takes_what_a_relay_has_that_stands_still(
    run: Run, outbox: Outbox, relays, database_url: str
) -> None:
    add(run, outbox, 1, 2)
    with frozen_relay(database_url, run, 1):
        assert relays(lease=0.5).relay(60) == 2
    assert published(run) == [1, 2]


def refuse(transaction: Transaction, on: bool) -> None:
    """Make the database refuse messages, as a broken trigger or a wrong permission would."""
    if transaction.dialect == "sqlite":
        make = "CREATE TRIGGER broken BEFORE INSERT ON topic_messages BEGIN SELECT raise(ABORT, 'broken trigger'); END"
        transaction.execute_script(make if on else "DROP TRIGGER broken")
    elif on:
        transaction.execute_script(
            "CREATE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'broken trigger'; END $$;"
            "CREATE TRIGGER broken BEFORE INSERT ON topic_messages FOR EACH ROW EXECUTE FUNCTION broken()"
        )
    else:
        transaction.execute_script("DROP TRIGGER broken ON topic_messages")


@pytest.mark.warns("RELAY_FAILED")
def test_what_cannot_be_published_is_kept_and_tried_later_counted_from_the_last_attempt(
    run: Run, outbox: Outbox, relays, pass_time
) -> None:
    add(run, outbox, 1, 2)
    relay = relays(lease=1000)
    assert relay._leads(0)
    with run.transaction() as transaction:
        refuse(transaction, True)
    assert relay.relay() == 0
    pass_time(1000)  # old enough to be tried at once
    assert relay.relay() == 0
    attempts = outbox.attempts()
    assert attempts is not None
    assert attempts.failed == 2
    with run.transaction() as transaction:
        refuse(transaction, False)
    assert relay.relay() == 0, "the last attempt was a moment ago, however old the message is"
    pass_time(2)
    assert relay.relay() == 2
    assert published(run) == [1, 2]
    with run.reading() as view:
        errors = view.execute("SELECT attempts, error FROM outbox_messages", {})
    assert [count for count, _ in errors] == [2, 2]
    assert all("broken trigger" in error for _, error in errors)


@pytest.mark.parametrize(
    ("attempts", "pause"),
    [
        (Attempts(0, None), 0),
        (Attempts(1, 0), 1),
        (Attempts(3, 1000), 3),
        (Attempts(3, 9000), 0),
        (Attempts(99, 0), 60),
    ],
)
def test_each_failed_attempt_doubles_the_pause_up_to_a_minute(attempts: Attempts, pause: float) -> None:
    assert _pause(attempts) == pause


@pytest.mark.parametrize(("failed", "size"), [(0, 500), (1, 250), (4, 31), (9, 1), (1000, 1)])
def test_each_failed_attempt_halves_the_batch(failed: int, size: int) -> None:
    assert _batch(500, Attempts(failed, 0)) == size


@pytest.mark.warns("Relay to validation-topic: ")
def test_a_relay_survives_a_transaction_that_the_database_has_ended(
    run: Run, outbox: Outbox, relays, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., None]
) -> None:
    attempts = Outbox.attempts
    ended = iter([TransactionAborted(database="d", reason="deadlock detected")])

    def unlucky(self: Outbox) -> Attempts | None:
        if error := next(ended, None):
            raise error
        return attempts(self)

    monkeypatch.setattr(Outbox, "attempts", unlucky)
    add(run, outbox, 1, 2)
    relay = relays()
    thread = threading.Thread(target=relay.run)
    thread.start()
    eventually(lambda: published(run) == [1, 2])
    relay.stop()
    thread.join()
    assert relay.error is None


def test_a_lease_must_last(run: Run) -> None:
    with pytest.raises(InvalidOption, match="more than 0 seconds"):
        Relay(run, TOPIC, lease=0)


def test_an_outbox_is_as_far_behind_as_it_has_unsent_messages(run: Run, outbox: Outbox, relays, pass_time) -> None:
    """The baton is never acknowledged: it is not a message that anybody waits for."""
    relay = relays()
    assert relay.relay() == 0
    pass_time(1000)
    assert run.groups.list() == [GroupStatus(f"outbox/{TOPIC}", "relay", 0, 0, 0, None)]

    add(run, outbox, 1, 2, 3)
    pass_time(60)
    (status,) = run.groups.list(f"outbox/{TOPIC}")
    assert (status.lag, status.claimed) == (3, 0)
    assert status.oldest_ms is not None and 60_000 <= status.oldest_ms < 1_000_000
    relay.relay()
    (status,) = run.groups.list()
    assert (status.lag, status.oldest_ms) == (0, None)


def test_the_relays_of_an_outbox_cannot_be_set_past_their_baton(run: Run, outbox: Outbox, relays) -> None:
    """Nobody could relay any more: the baton is the only message of its topic, and would never be delivered again."""
    relay = relays()
    assert relay.relay() == 0
    for to in ("end", datetime.now(tz=UTC) + timedelta(days=1)):
        for dry_run in (True, False):
            with pytest.raises(BatonPassedOver, match="--to earliest"):
                run.groups.reset(f"outbox/{TOPIC}", "relay", to, dry_run=dry_run)
    assert run.groups.reset(f"outbox/{TOPIC}", "relay", "earliest") == 1
    add(run, outbox, 1)
    assert relay.relay(5) + relays().relay(5) == 1


def test_a_topic_of_another_kind_is_not_taken_for_an_outbox(run: Run) -> None:
    with run.baton_writer("outbox/mine") as writer, run.reader("outbox/mine", group="relay"):
        writer.send(MetadataInfo(written_at_ms=1))
    (status,) = run.groups.list()
    assert status.lag == 1


def test_only_relays_write_to_the_topic_of_a_baton(run: Run) -> None:
    with pytest.raises(ReservedTopic, match="Choose another name"):
        run.writer(f"outbox/{TOPIC}")
    with pytest.raises(ReservedTopic):
        IdempotentConsumer(run, "in", "g", lambda payload, _: payload, publishes="outbox/mine")
    assert run.groups.list() == []


def test_another_message_next_to_the_baton_makes_no_second_leader(run: Run, outbox: Outbox, relays) -> None:
    """An earlier version accepted such messages."""
    first, second = relays(), relays()
    with run.baton_writer(f"outbox/{TOPIC}") as writer:
        writer.send_many([MetadataInfo(written_at_ms=1), MetadataInfo(written_at_ms=2)])
    assert first.relay() == 0
    add(run, outbox, 1, 2)
    assert second.relay() == 0
    assert [claim.message_id for claim in run.claims.list()] == [baton_id(f"outbox/{TOPIC}")]
    (status,) = run.groups.list(f"outbox/{TOPIC}")
    assert status.lag == 2, "those of the outbox"
    assert first.relay() == 2


def test_a_topic_whose_baton_would_have_too_long_a_name_is_refused_before_any_work(run: Run) -> None:
    Outbox(run, "x" * 248)
    with pytest.raises(InvalidName):
        IdempotentConsumer(run, "in", "g", lambda payload, _: payload, publishes="x" * 249)
    assert run.groups.list() == []


def test_batons_are_not_counted_as_messages(run: Run, outbox: Outbox) -> None:
    for number in range(3):
        add(run, outbox, number)
        with Relay(run, TOPIC) as relay:
            assert relay.relay() == 1
    counted = run.monitor.snapshot()
    assert counted["messages_published"] == len(run.browse(TOPIC)) == 3
    assert counted["messages_received"] == 0


@pytest.mark.warns("RELAY_FAILED")
@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
@pytest.mark.parametrize("state", ["57014", "40001", "53200"])
def test_a_batch_that_cannot_even_be_read_is_halved(
    run: Run, outbox: Outbox, relays, pass_time, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """As under a `statement_timeout` that is enough for a few messages."""
    add(run, outbox, *range(20))
    relay, unsent = relays(batch_size=16, lease=1e6), Outbox.unsent

    def too_many(self: Outbox, limit: int, connection: Transaction) -> list[Row]:
        if limit > 2:
            connection.execute_script(f"DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{state}'; END $$")
        return unsent(self, limit, connection)

    monkeypatch.setattr(Outbox, "unsent", too_many)
    for _ in range(4):
        relay.relay()
        pass_time(100)
    assert published(run) == [0, 1]
    assert relay.monitor.counter("relay_errors").value == 3


@pytest.mark.warns("RELAY_FAILED")
def test_a_batch_for_which_there_is_no_memory_is_halved(
    run: Run, outbox: Outbox, relays, pass_time, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(run, outbox, 1, 2, 3)
    relay, unsent = relays(batch_size=2, lease=1e6), Outbox.unsent

    def too_many(self: Outbox, limit: int, connection: Transaction) -> list[Row]:
        if limit > 1:
            raise MemoryError
        return unsent(self, limit, connection)

    monkeypatch.setattr(Outbox, "unsent", too_many)
    assert relay.relay() == 0
    pass_time(100)
    assert relay.relay() == 1
    assert published(run) == [1]
