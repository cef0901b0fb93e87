"""The idempotent consumer, on every database: each event's work and its results happen once."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any
from uuid import UUID, uuid4

import pytest
from google.protobuf.message import Message as Payload

from ticklake import BatchInfo, Database, MetadataInfo
from ticklake.consumer import IdempotentConsumer, Outbox, ProcessedMessages, Relay, consumer
from ticklake.consumer.processed import Known
from ticklake.database import Transaction
from ticklake.errors import DatabaseLocked, InvalidOption, ResultsNotPublished, UniqueViolation
from ticklake.topics import Message, Run
from ticklake.topics.envelope import client_clock_ms, wrap

IN, OUT, GROUP = "ingestion-topic", "validation-topic", "validation-consumer-group"


def trade(number: int, event_id: str | None = None) -> BatchInfo:
    return BatchInfo(simulation_run_id=event_id or str(UUID(int=number)), tick_start=number)


def event_id(message: Message) -> str:
    return str(message.payload.simulation_run_id)  # type: ignore[attr-defined]


class Ledger:
    """A handler that books each trade in a table of its own and publishes a result."""

    def __init__(self, run: Run) -> None:
        self._run = run
        with run.transaction() as transaction:
            transaction.execute_script("CREATE TABLE IF NOT EXISTS booked (number integer)")

    def __call__(self, payload: BatchInfo, tx: Transaction) -> Payload | None:
        tx.execute_script(f"INSERT INTO booked VALUES ({payload.tick_start})")
        return MetadataInfo(simulation_run_id=payload.simulation_run_id, written_at_ms=payload.tick_start)

    @property
    def booked(self) -> list[int]:
        with self._run.reading() as view:
            return [row[0] for row in view.execute("SELECT number FROM booked ORDER BY number", {})]


@pytest.fixture
def ledger(run: Run) -> Ledger:
    return Ledger(run)


@pytest.fixture
def consume(run: Run, ledger: Ledger) -> Iterator[Callable[..., IdempotentConsumer]]:
    """Opens consumers that take the event id from the payload and retry at once."""
    opened: list[IdempotentConsumer] = []

    def make(handler: object = ledger, group: str = GROUP, in_run: Run = run, **options: object) -> IdempotentConsumer:
        settings = {"event_id": event_id, "retry_delay": 0.0, "publishes": OUT} | options
        opened.append(IdempotentConsumer(in_run, IN, group, handler, **settings))  # type: ignore[arg-type]
        return opened[-1]

    yield make
    for one in opened:
        one.close()


def send(run: Run, *payloads: Payload) -> None:
    with run.writer(IN) as writer:
        writer.send_many(payloads)


def published(run: Run) -> list[int]:
    """What is on the next topic, in its order."""
    messages = run.browse(OUT, limit=100_000)
    return [opened.payload.written_at_ms for m in messages if (opened := m.opened())]  # type: ignore[attr-defined]


def lag(run: Run, group: str = GROUP) -> list[tuple[int, int]]:
    return [(status.lag, status.dead_letters) for status in run.groups.list(IN) if status.group == group]


def test_the_mark_the_work_and_the_result_appear_together(run: Run, ledger: Ledger, consume) -> None:
    send(run, *(trade(number) for number in range(250)))
    assert consume().run_until_caught_up() == 250
    assert ledger.booked == published(run) == list(range(250))
    assert lag(run) == [(0, 0)]
    with run.reading() as view:
        rows = view.execute("SELECT event_id, consumer_group, topic, version FROM processed_messages", {})
    assert {(str(row[0]), *row[1:]) for row in rows} == {(str(UUID(int=n)), GROUP, IN, 0) for n in range(250)}


def test_an_event_that_was_done_before_is_skipped_without_work(run: Run, ledger: Ledger, consume) -> None:
    send(run, trade(1))
    consumer_ = consume()
    consumer_.run_until_caught_up()
    send(run, trade(1), trade(2), trade(1))
    consumer_.run_until_caught_up()
    assert ledger.booked == published(run) == [1, 2]
    assert consumer_.monitor.counter("duplicates_skipped").value == 2
    assert lag(run) == [(0, 0)]


def test_twins_in_one_batch_are_done_once(run: Run, ledger: Ledger, consume) -> None:
    send(run, trade(1), trade(2), trade(1), trade(1), trade(2))
    consume().run_until_caught_up()
    assert ledger.booked == published(run) == [1, 2]
    assert lag(run) == [(0, 0)]


def test_ids_that_are_spelled_differently_are_one_event(run: Run, ledger: Ledger, consume) -> None:
    id_ = str(uuid4())
    send(run, trade(1, id_), trade(1, id_.upper()), trade(1, f"{{{id_}}}"))
    consume().run_until_caught_up()
    assert ledger.booked == [1]


def test_by_default_the_message_is_the_event(run: Run, ledger: Ledger, consume) -> None:
    send(run, trade(1), trade(1))
    consume(event_id=lambda message: message.id).run_until_caught_up()
    assert ledger.booked == [1, 1]


def test_groups_do_the_same_event_independently(run: Run, ledger: Ledger, consume) -> None:
    send(run, trade(1))
    consume().run_until_caught_up()
    consume(group="audit-consumer-group").run_until_caught_up()
    assert ledger.booked == published(run) == [1, 1]


def _waits_for_a_lock(run: Run) -> bool:
    """Whether a transaction of this run waits for one of another connection."""
    with run.reading() as view:
        if view.dialect == "postgres":
            waiting = view.execute("SELECT count(*) FROM pg_locks WHERE NOT granted", {})
            return bool(waiting[0][0])
    return run._schema.pool()["active"] == 1  # in BEGIN IMMEDIATE


def test_who_meets_the_same_event_at_the_same_instant_waits_and_skips(
    run: Run, database_url: str, ledger: Ledger, consume, eventually
) -> None:
    send(run, trade(1), trade(1))
    at_work, go_on = threading.Event(), threading.Event()

    def slow(payload: BatchInfo, tx: Transaction) -> Payload | None:
        at_work.set()
        assert go_on.wait(60)
        return ledger(payload, tx)

    with Database(database_url) as other_database:
        other = other_database.run(run.id)
        first, second = consume(slow, batch_size=1), consume(batch_size=1, in_run=other)
        threads = [threading.Thread(target=first.process), threading.Thread(target=second.process)]
        messages = second._reader.poll_many(1, 0)  # both have their message before either works
        second._reader.poll_many = lambda *_: messages  # type: ignore[method-assign]
        threads[0].start()
        assert at_work.wait(60)
        threads[1].start()
        eventually(lambda: _waits_for_a_lock(other))
        go_on.set()
        for thread in threads:
            thread.join(60)
        assert second.monitor.counter("duplicates_skipped").value == 1
        assert second.monitor.percentiles("transaction").count == 1, "it was found by the mark, not by the fast check"
        second.close()
    assert ledger.booked == [1]
    assert lag(run) == [(0, 0)]


@pytest.mark.warns("STUCK_MESSAGE_REASSIGNED", "STALE_ACK_REJECTED")
def test_who_lost_its_claim_at_work_still_does_it_once(run: Run, ledger: Ledger, consume, pass_time) -> None:
    send(run, trade(1))
    slow = consume(claim_timeout=10)
    (message,) = slow._reader.poll_many(1, 0)
    pass_time(11)
    assert consume().process(0) == 1
    slow._reader.poll_many = lambda *_: [message]  # type: ignore[method-assign]
    slow.process(0)
    assert ledger.booked == [1]
    assert lag(run) == [(0, 0)]


@pytest.mark.warns("MESSAGE_FAILED")
def test_a_failed_message_leaves_no_trace_and_comes_again(run: Run, ledger: Ledger, consume) -> None:
    send(run, *(trade(number) for number in range(10)))
    failures = iter([ValueError("not today")] * 2)  # with the others, and in a savepoint of its own

    def moody(payload: BatchInfo, tx: Transaction) -> Payload | None:
        result = ledger(payload, tx)
        if payload.tick_start == 5 and (error := next(failures, None)):
            raise error
        return result

    consumer_ = consume(moody)
    consumer_.process(0)
    assert ledger.booked == [0, 1, 2, 3, 4, 6, 7, 8, 9], "only the one that failed is undone"
    consumer_.run_until_caught_up()
    assert ledger.booked == list(range(10))
    assert published(run) == [0, 1, 2, 3, 4, 6, 7, 8, 9, 5]
    assert lag(run) == [(0, 0)]


@pytest.mark.warns("MESSAGE_FAILED", "DEAD_LETTER")
def test_every_attempt_begins_with_what_was_sent_whatever_the_last_one_made_of_it(run: Run, consume) -> None:
    send(run, *(trade(number) for number in range(3)))

    def changes(payload: BatchInfo, tx: Transaction) -> Payload | None:
        if payload.tick_start == 2:
            raise ValueError("so the transaction is repeated")
        payload.tick_start += 1000
        return MetadataInfo(written_at_ms=payload.tick_start)

    consume(changes, max_delivery_attempts=1).run_until_caught_up()
    assert published(run) == [1000, 1001]


@pytest.mark.warns("MESSAGE_FAILED", "DEAD_LETTER")
def test_a_twin_of_a_failed_message_is_no_duplicate(run: Run, ledger: Ledger, consume) -> None:
    send(run, trade(1), trade(1))
    failures = iter([ValueError("not today")] * 2)  # with the others, and in a savepoint of its own

    def moody(payload: BatchInfo, tx: Transaction) -> Payload | None:
        if error := next(failures, None):
            raise error
        return ledger(payload, tx)

    consume(moody, max_delivery_attempts=1).run_until_caught_up()
    assert ledger.booked == [1]


@pytest.mark.warns("MESSAGE_FAILED", "DEAD_LETTER")
def test_a_message_that_keeps_failing_becomes_a_dead_letter_with_its_error(run: Run, ledger: Ledger, consume) -> None:
    send(run, trade(1), trade(2), trade(3))

    def fails(payload: BatchInfo, tx: Transaction) -> Payload | None:
        result = ledger(payload, tx)
        if payload.tick_start == 2:
            raise ValueError("no such account")
        return result

    consumer_ = consume(fails, max_delivery_attempts=3)
    consumer_.run_until_caught_up()
    assert ledger.booked == published(run) == [1, 3]
    (letter,) = run.dead_letters.list()
    assert (letter.attempts, letter.error) == (3, "ValueError: no such account")
    assert "fails" in letter.traceback
    assert run.dead_letters.replay() == 1
    consume().run_until_caught_up()
    assert ledger.booked == [1, 2, 3]


@pytest.mark.warns("MESSAGE_FAILED")
@pytest.mark.parametrize("kind", ["unique", "syntax"])
def test_a_database_error_in_the_handler_is_a_redelivery_and_no_duplicate(
    run: Run, ledger: Ledger, consume, kind: str
) -> None:
    with run.transaction() as transaction:
        transaction.execute_script("CREATE TABLE once (x integer PRIMARY KEY); INSERT INTO once VALUES (1)")
    failing = {"unique": "INSERT INTO once VALUES (1)", "syntax": "SELEC 1"}[kind]
    send(run, trade(1), trade(2))
    attempts: list[int] = []

    def breaks(payload: BatchInfo, tx: Transaction) -> Payload | None:
        result = ledger(payload, tx)
        attempts.append(payload.tick_start)
        if attempts.count(1) < 4 and payload.tick_start == 1:
            tx.execute_script(failing)
        return result

    consume(breaks).run_until_caught_up()
    assert attempts == [1, 1, 2, 1, 1], "together, then in savepoints, then redelivered twice"
    assert ledger.booked == [1, 2]
    assert lag(run) == [(0, 0)]


def test_a_handler_may_catch_a_unique_violation_of_its_own(run: Run, ledger: Ledger, consume) -> None:
    with run.transaction() as transaction:
        transaction.execute_script("CREATE TABLE once (x integer PRIMARY KEY); INSERT INTO once VALUES (1)")
    send(run, trade(1))

    def careful(payload: BatchInfo, tx: Transaction) -> Payload | None:
        with pytest.raises(UniqueViolation), tx.savepoint():
            tx.execute_script("INSERT INTO once VALUES (1)")
        return ledger(payload, tx)

    consume(careful).run_until_caught_up()
    assert ledger.booked == [1]


@pytest.mark.warns("Consumer validation-consumer-group: Another program")
def test_an_outage_costs_a_message_no_attempt(
    run: Run, ledger: Ledger, consume, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(run, trade(1))
    lock = DatabaseLocked(database="d", seconds=30.0)
    outages = iter([lock] * 7)
    find = ProcessedMessages.find

    def unlucky(self: ProcessedMessages, event_ids: Sequence[str]) -> Known:
        if error := next(outages, None):
            raise error
        return find(self, event_ids)

    monkeypatch.setattr(ProcessedMessages, "find", unlucky)
    consume(max_delivery_attempts=2).run_until_caught_up()
    assert ledger.booked == [1]
    assert lag(run) == [(0, 0)]


@pytest.mark.warns("MESSAGE_FAILED", "DEAD_LETTER")
def test_a_message_that_spoils_the_commit_does_not_take_others_with_it(
    run: Run, database_url: str, ledger: Ledger, consume
) -> None:
    deferred = "CREATE TABLE parent (x integer PRIMARY KEY); CREATE TABLE child (x integer REFERENCES parent (x) {})"
    with run.transaction() as transaction:
        transaction.execute_script(deferred.format("DEFERRABLE INITIALLY DEFERRED"))
    if database_url.startswith("sqlite"):
        run._schema._writer.connected().execute("PRAGMA foreign_keys = ON")  # type: ignore[attr-defined]
    send(run, *(trade(number) for number in range(5)))

    def orphans(payload: BatchInfo, tx: Transaction) -> Payload | None:
        if payload.tick_start == 3:
            tx.execute_script("INSERT INTO child VALUES (7)")  # refused when the transaction commits
        return ledger(payload, tx)

    consume(orphans, max_delivery_attempts=2).run_until_caught_up()
    assert ledger.booked == published(run) == [0, 1, 2, 4]
    assert lag(run) == [(0, 1)]


@pytest.mark.warns("MESSAGE_FAILED", "DEAD_LETTER")
def test_a_consumer_whose_event_id_gives_none_says_so_in_one_line(run: Run, ledger: Ledger) -> None:
    send(run, trade(1))
    nothing = consumer(IN, group="g", publishes=OUT, event_id=lambda _: None, max_delivery_attempts=2, retry_delay=0.01)
    with nothing(ledger).on(run) as opened:
        opened.run_until_caught_up()
    (letter,) = run.dead_letters.list()
    assert "An event id must be a UUID, but this is None." in letter.error and "\n" not in letter.error
    assert ledger.booked == []


@pytest.mark.parametrize("wrong", [None, "event_id"])
def test_an_event_id_that_is_no_function_is_refused_when_the_consumer_is_defined(run: Run, wrong: Any) -> None:
    with pytest.raises(InvalidOption, match=f"event_id cannot be {wrong!r}: it must be a function"):
        consumer(IN, group="g", event_id=wrong)
    with pytest.raises(InvalidOption, match="event_id"):
        IdempotentConsumer(run, IN, "g", lambda _payload, _tx: None, event_id=wrong)


@pytest.mark.warns("MESSAGE_FAILED", "DEAD_LETTER")
@pytest.mark.parametrize("id_", ["", "not a uuid", "1; DROP TABLE booked"])
def test_an_event_id_that_is_none_is_a_dead_letter(run: Run, ledger: Ledger, consume, id_: str) -> None:
    send(run, BatchInfo(simulation_run_id=id_), trade(1))
    consume(max_delivery_attempts=2).run_until_caught_up()
    assert ledger.booked == [1]
    assert "An event id must be a UUID" in run.dead_letters.list()[0].error


@pytest.mark.warns("MESSAGE_FAILED", "DEAD_LETTER")
@pytest.mark.parametrize(
    ("publishes", "result", "message"),
    [(None, MetadataInfo(), "has no topic for it"), (OUT, "text", "stores protobuf messages"), (OUT, 7, "is a int")],
)
def test_a_result_that_cannot_be_published_fails_the_message(
    run: Run, ledger: Ledger, consume, publishes: str | None, result: object, message: str
) -> None:
    send(run, trade(1))

    def wrong(payload: BatchInfo, tx: Transaction) -> object:
        ledger(payload, tx)
        return result

    consume(wrong, publishes=publishes, max_delivery_attempts=1).run_until_caught_up()
    assert ledger.booked == []
    assert message in run.dead_letters.list()[0].error


def test_a_handler_may_have_no_result_or_several(run: Run, consume) -> None:
    send(run, trade(0), trade(1), trade(3))

    def several(payload: BatchInfo, tx: Transaction) -> Iterator[Payload]:
        return (MetadataInfo(written_at_ms=payload.tick_start) for _ in range(payload.tick_start))

    consume(several).run_until_caught_up()
    assert published(run) == [1, 3, 3, 3]
    consume(lambda payload, tx: None, group="silent").run_until_caught_up()
    assert published(run) == [1, 3, 3, 3]


def test_a_long_batch_is_spread_over_several_transactions(run: Run, ledger: Ledger, consume, monkeypatch) -> None:
    monkeypatch.setattr("ticklake.consumer.idempotent.TRANSACTION_SECONDS", -1.0)
    send(run, *(trade(number) for number in range(5)), trade(0))
    consumer_ = consume()
    assert consumer_.process(0) == 6
    assert consumer_.monitor.percentiles("transaction").count == 5, "the twin needs none of its own"
    assert ledger.booked == list(range(5))
    assert lag(run) == [(0, 0)]


def test_the_decorator_makes_a_function_a_consumer_and_leaves_it_a_function(run: Run) -> None:
    @consumer(IN, group=GROUP, publishes=OUT, event_id=event_id)
    def validate(payload: BatchInfo, tx: Transaction) -> MetadataInfo:
        """Says yes."""
        return MetadataInfo(written_at_ms=payload.tick_start + 100)

    send(run, trade(1), trade(1))
    with validate.on(run) as opened:
        opened.run_until_caught_up()
    assert published(run) == [101]
    assert (validate.__name__, validate.__doc__) == ("validate", "Says yes.")
    with run.transaction() as transaction:
        assert validate(trade(2), transaction).written_at_ms == 102


def test_run_consumes_and_relays_until_it_is_stopped(run: Run, ledger: Ledger, consume, eventually) -> None:
    consumer_ = consume()
    thread = threading.Thread(target=consumer_.run)
    thread.start()
    for number in range(3):
        send(run, trade(number))
        eventually(lambda number=number: published(run) == list(range(number + 1)))
    consumer_.stop()
    thread.join(60)
    assert not thread.is_alive()
    assert run.claims.list() == [], "the baton and every message are given back"


@pytest.mark.warns("REPLAY_OLDER_THAN_MARKS")  # the test moves the database's clock and not the sender's
def test_marks_are_pruned_by_age_but_never_while_a_replay_could_bring_the_message_back(
    run: Run, ledger: Ledger, consume, pass_time, monkeypatch
) -> None:
    monkeypatch.setattr("ticklake.consumer.processed.CHUNK", 2)
    send(run, *(trade(number) for number in range(5)))
    consumer_ = consume()
    consumer_.run_until_caught_up()
    marks = ProcessedMessages(run, IN, GROUP)
    pass_time(1000)
    assert marks.prune(10) == 0, "the messages are still in the topic"
    run.groups.reset(IN, GROUP, "earliest")
    consumer_.run_until_caught_up()
    assert ledger.booked == list(range(5))
    assert run.remove_outdated(IN, max_age=100) == 5
    send(run, trade(7))
    assert marks.prune(2000) == 0
    assert marks.prune(10) == 5
    consumer_.run_until_caught_up()
    assert ledger.booked == [0, 1, 2, 3, 4, 7]


@pytest.mark.warns("REPLAY_OLDER_THAN_MARKS")  # the test moves the database's clock and not the sender's
def test_marks_are_kept_for_events_that_an_open_transaction_sends_again(
    run: Run, ledger: Ledger, consume, clock, pass_time, monkeypatch
) -> None:
    """Its message is nowhere to be seen when marks are pruned, and is delivered afterwards."""
    send(run, trade(1))
    consumer_ = consume()
    consumer_.run_until_caught_up()
    assert run.remove_outdated(IN, max_count=0) == 1
    begins, transaction_of = threading.Event(), Run.transaction

    def begin(self: Run, *, durable: bool = True) -> AbstractContextManager[Transaction]:
        begins.set()
        return transaction_of(self, durable=durable)

    with ThreadPoolExecutor(1) as pool:
        with run.writer(IN) as writer, run.transaction() as open_one:
            writer.send(trade(1), connection=open_one)
            if open_one.dialect == "postgres":
                pass_time(1000)
            else:
                clock.ahead_ms += 1_000_000  # the file is locked
            monkeypatch.setattr(Run, "transaction", begin)
            pruning = pool.submit(ProcessedMessages(run, IN, GROUP).prune, 10)
            assert begins.wait(60)
            if open_one.dialect == "postgres":
                assert pruning.result() == 0
        pruning.result()
    consumer_.run_until_caught_up()
    assert ledger.booked == [1]


@pytest.mark.warns("REPLAY_OLDER_THAN_MARKS")
def test_a_replay_from_before_the_marks_warns(run: Run, ledger: Ledger, consume, pass_time) -> None:
    send(run, trade(1))
    consumer_ = consume()
    consumer_.run_until_caught_up()
    pass_time(1000)
    run.remove_outdated(IN, max_age=100)
    assert ProcessedMessages(run, IN, GROUP).prune(10) == 1
    send(run, trade(1))  # its timestamp is the client's: a thousand seconds ago
    consumer_.run_until_caught_up()
    assert consumer_.monitor.errors.recorded.value == 1
    assert published(run) == [1], "its result has the same id as the first time"


@pytest.mark.parametrize("own_id", [True, False])
def test_an_event_of_two_topics_is_done_once_though_the_first_topic_has_forgotten_it(
    run: Run, pass_time, own_id: bool
) -> None:
    """The group's consumer of the second topic is merely late: its message was there all the time."""
    done: list[int] = []
    id_of = (lambda message: message.id) if own_id else event_id
    envelope = wrap(trade(1), client_clock_ms(), str(UUID(int=1)))
    consumers = [
        IdempotentConsumer(run, topic, GROUP, lambda payload, _: done.append(payload.tick_start), event_id=id_of)
        for topic in (IN, "sent-again")
    ]
    first, second = consumers
    for topic in (IN, "sent-again"):
        with run.writer(topic) as writer:
            writer.forward([envelope])
    assert first.run_until_caught_up() == 1
    pass_time(1000)
    assert run.remove_outdated(IN, max_count=0) == 1
    assert ProcessedMessages(run, IN, GROUP).prune(10) == 0
    assert second.run_until_caught_up() == 1
    assert done == [1]
    assert run.remove_outdated("sent-again", max_count=0) == 1
    assert ProcessedMessages(run, IN, GROUP).prune(10) == 1
    for one in consumers:
        one.close()


@pytest.mark.warns("REPLAY_OLDER_THAN_MARKS")
def test_a_topic_that_joins_after_marks_were_forgotten_warns(run: Run, consume, pass_time) -> None:
    send(run, trade(1))
    consume().run_until_caught_up()
    with run.writer("sent-again") as writer:
        writer.send(trade(1))
    pass_time(1000)
    run.remove_outdated(IN, max_age=100)
    assert ProcessedMessages(run, IN, GROUP).prune(10) == 1
    with IdempotentConsumer(run, "sent-again", GROUP, lambda _, __: None, event_id=event_id) as late:
        late.run_until_caught_up()
        assert late.monitor.errors.recorded.value == 1


def test_sent_outbox_rows_are_pruned_by_age_and_unsent_ones_are_not(run: Run, consume, pass_time, monkeypatch) -> None:
    monkeypatch.setattr("ticklake.consumer.outbox.CHUNK", 2)
    send(run, *(trade(number) for number in range(5)))
    consume().run_until_caught_up()
    send(run, trade(7))
    consume().process(0)
    outbox = Outbox(run, OUT)
    pass_time(100)
    assert outbox.prune(1000) == 0
    assert outbox.prune(10) == 5
    assert outbox.count_unsent() == 1
    with pytest.raises(InvalidOption):
        outbox.prune(-1)


@pytest.mark.warns("STUCK_MESSAGE_REASSIGNED", "STALE_ACK_REJECTED")
@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
def test_a_consumer_that_stands_still_at_work_stops_nobody_else_and_costs_no_attempt(
    run: Run, database_url: str, ledger: Ledger, consume, pass_time, eventually
) -> None:
    send(run, *(trade(number) for number in range(3)))
    at_work, go_on = threading.Event(), threading.Event()

    def stands_still(payload: BatchInfo, tx: Transaction) -> Payload | None:
        at_work.set()
        assert go_on.wait(60)
        return ledger(payload, tx)

    with Database(database_url) as other_database:
        stuck = consume(stands_still, in_run=other_database.run(run.id), claim_timeout=0.4)
        thread = threading.Thread(target=stuck.process)
        thread.start()
        assert at_work.wait(60)
        send(run, *(trade(number) for number in range(10, 13)))
        healthy = consume(claim_timeout=0.4, max_delivery_attempts=2)
        pass_time(60)
        try:
            eventually(lambda: healthy.process(0) or ledger.booked)
            for _ in range(4):
                pass_time(60)
                for _ in range(3):
                    healthy.process(0)
            assert ledger.booked == [10, 11, 12]
            assert lag(run) == [(3, 0)]
        finally:
            go_on.set()
            thread.join(60)
        stuck.close()
    pass_time(60)
    healthy.run_until_caught_up()
    assert ledger.booked == [0, 1, 2, 10, 11, 12]
    assert lag(run) == [(0, 0)]


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
def test_messages_that_another_consumer_is_processing_do_not_end_the_catching_up(
    run: Run, database_url: str, ledger: Ledger, consume, eventually
) -> None:
    send(run, *(trade(number) for number in range(3)))
    with run.reader(IN, group=GROUP) as reader:
        for message in reader.poll_many(2, 0):
            assert not reader.fail(message, "delivered once")
    with Database(database_url) as other_database:
        other = other_database.run(run.id)
        processed, events = ProcessedMessages(other, IN, GROUP), [str(UUID(int=number)) for number in range(2)]
        with ThreadPoolExecutor(1) as pool:
            with other.transaction() as transaction:
                assert processed.mark(events, transaction).ours == frozenset(events)
                caught_up = pool.submit(consume(batch_size=2, claim_timeout=4.0).run_until_caught_up)
                eventually(lambda: ledger.booked == [2])
                assert not caught_up.done()
                processed.unmark(events, transaction)
            assert caught_up.result(60) == 3
    assert ledger.booked == [0, 1, 2]
    assert lag(run) == [(0, 0)]


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
def test_what_a_handler_sets_for_its_session_meets_no_other_message(run: Run, database_url: str) -> None:
    send(run, *(trade(number) for number in range(4)))
    done: list[int] = []

    def sets(payload: BatchInfo, tx: Transaction) -> None:
        if payload.tick_start == 0:
            tx.execute_script("SET statement_timeout = '20ms'; SET default_transaction_read_only = on")
        else:
            tx.execute_script("SELECT pg_sleep(0.1)")
        done.append(payload.tick_start)

    with Database(database_url, max_pool_size=1) as narrow:
        options = {"retry_delay": 0.0, "batch_size": 1}
        with IdempotentConsumer(narrow.run(run.id), IN, GROUP, sets, **options) as consumer_:  # type: ignore[arg-type]
            consumer_.run_until_caught_up()
    assert done == [0, 1, 2, 3]
    assert lag(run) == [(0, 0)]


@pytest.mark.warns("STUCK_MESSAGE_REASSIGNED")
def test_whoever_has_caught_up_has_published_also_after_a_relay_that_died(run: Run, consume) -> None:
    """Nobody gives its baton back: it is free when the lease is over."""
    dead = Relay(run, OUT, lease=1.0)
    assert dead.relay() == 0
    send(run, trade(1), trade(2))
    assert consume(relay_lease=1.0).run_until_caught_up() == 2
    assert published(run) == [1, 2]
    dead.close()


def test_caught_up_beside_another_relay_that_is_at_work(run: Run, consume) -> None:
    other = Relay(run, OUT, lease=600.0)
    thread = threading.Thread(target=other.run)
    thread.start()
    try:
        send(run, trade(1), trade(2))
        assert consume(relay_lease=60.0).run_until_caught_up() == 2
        assert published(run) == [1, 2]
    finally:
        other.stop()
        thread.join()
        other.close()


def test_results_that_nobody_publishes_are_an_error_with_their_number(run: Run, consume) -> None:
    with Relay(run, OUT, lease=600.0) as idle:
        assert idle.relay() == 0
        send(run, trade(1), trade(2))
        with pytest.raises(ResultsNotPublished, match="2 results for 'validation-topic'"):
            consume(relay_lease=0.1).run_until_caught_up()
    assert consume().run_until_caught_up() == 0
    assert published(run) == [1, 2]


KILLER = """
import os, signal, sys, time
from ticklake import Database
from ticklake.consumer import IdempotentConsumer

def kill_at(payload, where):
    if payload.tick_start == 3 and where == sys.argv[4]:
        os.kill(os.getpid(), signal.SIGKILL)

def event_id(message):
    if message.payload.tick_start == 3:
        print(3, flush=True)
    kill_at(message.payload, "event_id")
    return message.id

def handler(payload, tx):
    if payload.tick_start != 3:
        print(payload.tick_start, flush=True)
    kill_at(payload, "handler")

with Database(sys.argv[1]) as database:
    options = {"claim_timeout": 0.3, "max_delivery_attempts": int(sys.argv[3]), "event_id": event_id}
    with IdempotentConsumer(database.run(sys.argv[2]), "ingestion-topic", "g", handler, **options) as consumer:
        while database.run(sys.argv[2]).groups.list("ingestion-topic")[0].lag:
            consumer.process(0.5)
"""


@pytest.mark.parametrize(
    "attempts", [pytest.param(1, marks=pytest.mark.slow), 3, pytest.param(5, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("where", ["handler", "event_id"])
def test_a_message_that_kills_its_process_costs_no_other_one_its_attempts(
    run: Run, database_url: str, attempts: int, where: str
) -> None:
    """Ten are claimed at once, and most of them are not begun when their process dies."""
    send(run, *(trade(number) for number in range(10)))
    begun: list[int] = []
    for _ in range(attempts + 2):
        command = [sys.executable, "-c", KILLER, database_url, run.id, str(attempts), where]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        begun += map(int, ended.stdout.split())
        if ended.returncode == 0:
            break
    else:
        pytest.fail(ended.stderr)
    assert [letter.opened().payload.tick_start for letter in run.dead_letters.list()] == [3]  # type: ignore[union-attr]
    assert attempts <= begun.count(3) <= attempts + 1
    assert set(begun) == set(range(10))
    assert lag(run, "g") == [(0, 1)]


@pytest.mark.warns("STUCK_MESSAGE_REASSIGNED", "STALE_ACK_REJECTED")
def test_slow_handlers_bury_nothing(run: Run, eventually: Callable[..., None]) -> None:
    """Each takes longer than the lease of everything that was claimed with it, and another consumer competes."""
    send(run, *(trade(number) for number in range(8)))
    begun, late = [], threading.Event()

    def handler(payload: BatchInfo, _: Transaction) -> None:
        begun.append(payload.tick_start)
        late.wait(0.4)

    options = {"claim_timeout": 0.2, "max_delivery_attempts": 2, "retry_delay": 0.0, "event_id": event_id}
    consumers = [IdempotentConsumer(run, IN, GROUP, handler, **options) for _ in range(2)]  # type: ignore[arg-type]
    threads = [threading.Thread(target=one.run) for one in consumers]
    for thread in threads:
        thread.start()
    eventually(lambda: lag(run) == [(0, 0)] or run.dead_letters.list())
    for one in consumers:
        one.stop()
    for thread in threads:
        thread.join()
    for one in consumers:
        one.close()
    assert run.dead_letters.list() == []
    assert sorted(begun) == list(range(8))
