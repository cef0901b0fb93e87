"""A message whose work fails in the database, or brings its connection down, ends as a dead letter."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import psycopg
import pytest
from google.protobuf.message import Message as Payload

from ticklake import BatchInfo
from ticklake.consumer import IdempotentConsumer
from ticklake.database import Transaction
from ticklake.database.endings import Statement, split
from ticklake.errors import DatabaseLocked, DatabaseUnavailable, TickLakeError, UniqueViolation
from ticklake.topics import Run
from ticklake.topics.envelope import Envelope

GROUP = "workers"
MOST_POLLS = 60
Work = Callable[[Transaction], object]


class Worker:
    """Writes down the number of each message, and does `work` for the one that is poison."""

    def __init__(self, run: Run, poison: int, work: Work) -> None:
        self._run, self._poison, self._work = run, poison, work
        self.attempts = 0
        with run.transaction() as transaction:
            transaction.execute_script("CREATE TABLE IF NOT EXISTS done (number integer)")

    def __call__(self, payload: BatchInfo, tx: Transaction) -> Payload | None:
        if payload.tick_start == self._poison:
            self.attempts += 1
            self._work(tx)
        tx.execute_script(f"INSERT INTO done VALUES ({payload.tick_start})")
        return None

    @property
    def done(self) -> list[int]:
        with self._run.reading() as view:
            return [row[0] for row in view.execute("SELECT number FROM done ORDER BY number", {})]


@pytest.fixture
def work_through(run: Run) -> Iterator[Callable[..., Worker]]:
    """Sends five messages, of which 2 is the poison, and polls until the group has none left."""

    def consume(work: Work, max_delivery_attempts: int = 3) -> Worker:
        worker = Worker(run, 2, work)
        with run.writer("t") as writer:
            writer.send_many([BatchInfo(tick_start=number) for number in range(5)])
        options = {"max_delivery_attempts": max_delivery_attempts, "retry_delay": 0.0}
        with IdempotentConsumer(run, "t", GROUP, worker, **options) as consumer:  # type: ignore[arg-type]
            for _ in range(MOST_POLLS):
                consumer.process(0.2)
                if lag(run) == 0:
                    break
        return worker

    yield consume


def lag(run: Run) -> int:
    return next(status.lag for status in run.groups.list("t") if status.group == GROUP)


def letters(run: Run) -> list[tuple[int, str]]:
    return [(letter.attempts, letter.error) for letter in run.dead_letters.list()]


def kill_own_connection(tx: Transaction) -> None:
    tx.execute_script("SELECT pg_terminate_backend(pg_backend_pid())")


def kill_own_connection_quietly(tx: Transaction) -> None:
    """The loss shows only in the statement after it, which may be another message's."""
    with pytest.raises(DatabaseUnavailable):
        kill_own_connection(tx)


def exceed_a_timeout(name: str) -> Work:
    def work(tx: Transaction) -> None:
        tx.execute_script(f"SET LOCAL {name} = '20ms'")
        tx.execute_script("SELECT pg_sleep(10)")

    return work


def sleep_in_the_transaction(tx: Transaction) -> None:
    tx.execute_script("SET LOCAL idle_in_transaction_session_timeout = '20ms'")
    with psycopg.connect(tx._connection.info.dsn) as other:  # type: ignore[attr-defined]
        (pid,) = (tx._connection.info.backend_pid,)  # type: ignore[attr-defined]
        query = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s"
        while other.execute(query, [pid]).fetchone() != (0,):
            other.rollback()
    tx.execute_script("SELECT 1")


def raise_that(state: str) -> Work:
    return lambda tx: tx.execute_script(f"DO $$ BEGIN RAISE EXCEPTION 'no luck' USING ERRCODE = '{state}'; END $$")


def lose_another_database(tx: Transaction) -> None:
    del tx
    raise DatabaseLocked(database="elsewhere", seconds=30.0)


POSTGRES = {
    "statement_timeout": (exceed_a_timeout("statement_timeout"), "statement timeout"),
    "idle_in_transaction_session_timeout": (sleep_in_the_transaction, ""),
    "its connection killed": (kill_own_connection, "terminating connection"),
    "its connection killed quietly": (kill_own_connection_quietly, ""),
    "deadlock": (raise_that("40P01"), "no luck"),
    "serialization": (raise_that("40001"), "no luck"),
    "lock not available": (raise_that("55P03"), "no luck"),
    "out of memory": (raise_that("53200"), "no luck"),
    "disk full": (raise_that("53100"), "No space is left"),
    "read only": (raise_that("25006"), "no luck"),
    "I/O error": (raise_that("58030"), "no luck"),
    "corrupted": (raise_that("XX001"), "no luck"),
}


@contextmanager
def no_dead_letters(run: Run) -> Iterator[None]:
    """Every attempt to keep a dead letter fails meanwhile."""
    with run.transaction() as transaction:
        transaction.execute_script(REFUSE[transaction.dialect])
    yield
    with run.transaction() as transaction:
        transaction.execute_script(TAKE[transaction.dialect])


REFUSE = {
    "sqlite": "CREATE TRIGGER refuse BEFORE INSERT ON topic_dead_letters BEGIN SELECT RAISE(ABORT, 'no'); END",
    "postgres": "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$; "
    "CREATE TRIGGER refuse BEFORE INSERT ON topic_dead_letters FOR EACH ROW EXECUTE FUNCTION refuse()",
}
TAKE = {"sqlite": "DROP TRIGGER refuse", "postgres": "DROP FUNCTION refuse CASCADE"}


@pytest.mark.warns("DEAD_LETTER_DELAYED", "DEAD_LETTER ")
def test_a_message_that_cannot_be_decoded_or_buried_holds_up_no_other(run: Run) -> None:
    with run.writer("t") as writer:
        writer.forward([Envelope("broken", 1, b"\xff\xff\xff")])
        writer.send_many([BatchInfo(tick_start=number) for number in range(3)])
    with run.reader("t", group=GROUP, claim_timeout=0) as reader:
        with no_dead_letters(run):
            assert len(reader.ack_many(reader.poll_many(10, 5))) == 3
            assert reader.poll(0.3) is None
            assert [claim.message_id for claim in run.claims.list()] == ["broken"]
        assert letters(run) == []
        assert reader.monitor.counter("dead_letter_errors").value >= 1
        assert reader.poll(0) is None
        assert len(letters(run)) == 1
        assert run.claims.list() == []
    assert lag(run) == 0


@pytest.mark.warns("DEAD_LETTER_DELAYED", "DEAD_LETTER ")
def test_who_closes_gives_back_what_could_not_be_buried(run: Run) -> None:
    with run.writer("t") as writer:
        writer.forward([Envelope("broken", 1, b"\xff\xff\xff")])
    with no_dead_letters(run), run.reader("t", group=GROUP, claim_timeout=0, max_unacknowledged=1) as reader:
        assert reader.poll(0) is None
    assert run.claims.list() == []
    with run.reader("t", group=GROUP) as reader:
        assert reader.poll(0) is None
    assert len(letters(run)) == 1


@pytest.mark.warns("DEAD_LETTER_DELAYED", "DEAD_LETTER ")
def test_a_reader_that_waits_for_room_goes_on_once_it_can_bury(run: Run, eventually: Callable[..., None]) -> None:
    with run.writer("t") as writer:
        writer.forward([Envelope("broken", 1, b"\xff\xff\xff")])
        writer.send(BatchInfo(tick_start=1))
    with run.reader("t", group=GROUP, claim_timeout=0, max_unacknowledged=1) as reader, ThreadPoolExecutor() as pool:
        with no_dead_letters(run):
            received = pool.submit(reader.receive)
            eventually(lambda: reader.monitor.counter("dead_letter_errors").value > 2)
        assert reader.ack(received.result(60))


@pytest.mark.warns("MESSAGE_FAILED", "DEAD_LETTER", "Consumer workers:", "Waiting for the database")
@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
@pytest.mark.parametrize("kind", POSTGRES)
def test_a_message_that_fails_in_postgres_every_time_becomes_a_dead_letter(
    run: Run, work_through: Callable[..., Worker], kind: str
) -> None:
    work, reason = POSTGRES[kind]
    worker = work_through(work)
    assert worker.done == [0, 1, 3, 4]
    ((attempts, error),) = letters(run)
    assert attempts == 3
    assert reason in error
    assert worker.attempts <= 6, "once with the others, once in savepoints or forgiven, and three times alone"


@pytest.mark.warns("MESSAGE_FAILED", "DEAD_LETTER", "Consumer workers:")
def test_work_that_always_loses_some_other_database_becomes_a_dead_letter(
    run: Run, work_through: Callable[..., Worker]
) -> None:
    assert work_through(lose_another_database).done == [0, 1, 3, 4]
    assert [attempts for attempts, _ in letters(run)] == [3]


@pytest.mark.warns("MESSAGE_FAILED", "DEAD_LETTER")
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_message_that_locks_its_own_table_in_sqlite_becomes_a_dead_letter(
    run: Run, work_through: Callable[..., Worker]
) -> None:
    def drop_what_is_being_read(tx: Transaction) -> None:
        rows = tx._connection.execute("SELECT name FROM sqlite_schema")  # type: ignore[attr-defined]
        next(rows)
        try:
            tx.execute_script("CREATE TABLE mine (x)")
            tx.execute_script("DROP TABLE mine")
        finally:
            rows.close()

    assert work_through(drop_what_is_being_read).done == [0, 1, 3, 4]
    ((attempts, error),) = letters(run)
    assert (attempts, "locked" in error) == (3, True)


@pytest.mark.warns("Consumer workers:", "Waiting for the database", "MESSAGE_FAILED")
@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
def test_an_outage_in_the_middle_of_the_work_costs_no_attempt(run: Run, work_through: Callable[..., Worker]) -> None:
    outages = iter(range(1))

    def interrupted(tx: Transaction) -> None:
        for _ in outages:
            kill_own_connection(tx)

    worker = work_through(interrupted, max_delivery_attempts=1)
    assert worker.done == [0, 1, 2, 3, 4]
    assert letters(run) == []


def end_it(text: str) -> Work:
    return lambda tx: tx.execute_script(text)


def end_it_and_fail(text: str) -> Work:
    def work(tx: Transaction) -> None:
        with suppress(TickLakeError):
            tx.execute_script(text)
        raise ValueError("poison")

    return work


ENDINGS = [
    "COMMIT",
    "commit work",
    "ROLLBACK",
    "ROLLBACK TRANSACTION",
    "END",
    "SELECT 'it''s'; -- a comment; \n COMMIT",
    "/* ; */ COMMIT; BEGIN",
    'SELECT 1 AS "a;b"; ROLLBACK; BEGIN',
    "CREATE TABLE spans (begin integer); INSERT INTO spans VALUES (1); COMMIT",
    "SELECT 1; -- note\rCOMMIT",
    "SELECT 1 AS x$y$; COMMIT; SELECT 2 AS z$y$",
]


@pytest.mark.warns("MESSAGE_FAILED", "DEAD_LETTER")
@pytest.mark.parametrize("text", ENDINGS)
def test_a_handler_that_ends_the_transaction_becomes_a_dead_letter_and_all_others_are_done_once(
    run: Run, work_through: Callable[..., Worker], text: str
) -> None:
    assert work_through(end_it(text)).done == [0, 1, 3, 4]
    ((attempts, error),) = letters(run)
    assert (attempts, "StatementEndsTransaction" in error) == (3, True)


@pytest.mark.warns("MESSAGE_FAILED", "DEAD_LETTER")
@pytest.mark.parametrize("text", ["COMMIT", "ROLLBACK"])
def test_a_handler_that_ends_the_transaction_and_fails_takes_no_other_message_with_it(
    run: Run, work_through: Callable[..., Worker], text: str
) -> None:
    assert work_through(end_it_and_fail(text)).done == [0, 1, 3, 4]
    assert letters(run) == [(3, "ValueError: poison")]


@pytest.mark.warns("MESSAGE_FAILED", "DEAD_LETTER")
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "text", ["COMMIT", "COMMIT; BEGIN", "ROLLBACK; BEGIN", "RELEASE ticklake_part_1; COMMIT; BEGIN"]
)
@pytest.mark.parametrize("work", [end_it, end_it_and_fail])
def test_sqlite_itself_keeps_a_handler_from_ending_the_transaction(
    run: Run,
    work_through: Callable[..., Worker],
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    work: Callable[[str], Work],
) -> None:
    monkeypatch.setattr("ticklake.database.schema.ending", lambda _: None)
    assert work_through(work(text)).done == [0, 1, 3, 4]
    assert len(letters(run)) == 1


@pytest.mark.warns("MESSAGE_FAILED", "DEAD_LETTER")
@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
@pytest.mark.parametrize("work", [end_it, end_it_and_fail])
def test_postgres_itself_keeps_a_statement_from_hiding_one_that_ends_the_transaction(
    run: Run, work_through: Callable[..., Worker], monkeypatch: pytest.MonkeyPatch, work: Callable[[str], Work]
) -> None:
    whole = [Statement("SELECT 1; COMMIT; BEGIN", "")]
    monkeypatch.setattr(
        "ticklake.database.postgres.backend.split", lambda text: whole if "COMMIT" in text else split(text)
    )
    monkeypatch.setattr("ticklake.database.schema.ending", lambda _: None)
    assert work_through(work("SELECT 1; COMMIT; BEGIN")).done == [0, 1, 3, 4]
    assert len(letters(run)) == 1


@pytest.mark.warns("MESSAGE_FAILED", "DEAD_LETTER")
@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
@pytest.mark.parametrize("text", ["DO $$ BEGIN COMMIT; END $$", "DO $$ BEGIN ROLLBACK; END $$", "CALL ends()"])
def test_a_procedure_cannot_end_the_transaction_of_a_handler(
    run: Run, work_through: Callable[..., Worker], text: str
) -> None:
    with run.transaction() as transaction:
        transaction.execute_script("CREATE PROCEDURE ends() LANGUAGE plpgsql AS 'BEGIN COMMIT; END'")
    assert work_through(end_it(text)).done == [0, 1, 3, 4]
    assert [attempts for attempts, _ in letters(run)] == [3]


@pytest.mark.warns("MESSAGE_FAILED", "DEAD_LETTER")
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_constraint_that_undoes_the_whole_transaction_takes_no_other_message_with_it(
    run: Run, work_through: Callable[..., Worker]
) -> None:
    with run.transaction() as transaction:
        transaction.execute_script("CREATE TABLE once (x integer PRIMARY KEY); INSERT INTO once VALUES (1)")

    def undo_all_quietly(tx: Transaction) -> None:
        with suppress(UniqueViolation):
            tx.execute_script("INSERT OR ROLLBACK INTO once VALUES (1)")

    assert work_through(undo_all_quietly).done == [0, 1, 3, 4]
    ((attempts, error),) = letters(run)
    assert (attempts, "TransactionGone" in error) == (3, True)


@pytest.mark.warns("MESSAGE_FAILED", "DEAD_LETTER")
def test_a_handler_that_leaves_a_savepoint_open_and_fails_leaves_no_trace(
    run: Run, work_through: Callable[..., Worker]
) -> None:
    def work(tx: Transaction) -> None:
        tx.execute_script("INSERT INTO done VALUES (2)")
        tx.savepoint().__enter__()
        raise ValueError("poison")

    assert work_through(work).done == [0, 1, 3, 4]
    assert letters(run) == [(3, "ValueError: poison")]


class OrderError(Exception):
    """Has a mistake where its text is made."""

    def __str__(self) -> str:
        return f"order {self.order} is bad"  # type: ignore[attr-defined]


def fail_with(error: BaseException) -> Work:
    def work(tx: Transaction) -> None:
        del tx
        raise error

    return work


@pytest.mark.warns("MESSAGE_FAILED", "DEAD_LETTER")
def test_an_error_whose_text_cannot_be_made_is_a_failure_like_any_other(
    run: Run, work_through: Callable[..., Worker]
) -> None:
    assert work_through(fail_with(OrderError())).done == [0, 1, 3, 4]
    ((attempts, error),) = letters(run)
    assert (attempts, error) == (3, "OrderError: its text cannot be formatted (AttributeError)")


@pytest.mark.warns("MESSAGE_FAILED", "DEAD_LETTER")
def test_an_error_of_any_length_is_stored_with_its_beginning_and_its_end(
    run: Run, work_through: Callable[..., Worker]
) -> None:
    assert work_through(fail_with(ValueError(f"first {'x' * 1_000_000} last"))).done == [0, 1, 3, 4]
    (letter,) = run.dead_letters.list()
    for text in (letter.error, letter.traceback):
        assert len(text) < 100_000
        assert "ValueError: first x" in text or "work" in text
        assert text.strip().endswith("x last")


class Panic(BaseException):
    """What a library in Rust raises."""


def live(run: Run, worker: Worker, lives: int) -> list[type[BaseException]]:
    """Starts a consumer again each time that it dies; what it died of."""
    deaths: list[type[BaseException]] = []
    for _ in range(lives):
        options = {"max_delivery_attempts": 3, "retry_delay": 0.0}
        try:
            with IdempotentConsumer(run, "t", GROUP, worker, **options) as consumer:  # type: ignore[arg-type]
                consumer.run_until_caught_up()
                return deaths
        except BaseException as error:
            deaths.append(type(error))
    return deaths


@pytest.mark.warns("MESSAGE_FAILED", "DEAD_LETTER")
@pytest.mark.parametrize("kind", [Panic, SystemExit, CancelledError, GeneratorExit])
def test_a_message_that_ends_its_consumer_every_time_becomes_a_dead_letter(
    run: Run, batch: Callable[[int], BatchInfo], kind: type[BaseException]
) -> None:
    with run.writer("t") as writer:
        writer.send_many([batch(number) for number in range(5)])
    worker = Worker(run, 2, fail_with(kind("no way")))
    assert live(run, worker, 5) == [kind] * 3
    assert worker.done == [0, 1, 3, 4]
    assert letters(run) == [(3, f"{kind.__name__}: no way")]


def test_an_operator_who_interrupts_the_work_costs_it_no_attempt(run: Run, batch: Callable[[int], BatchInfo]) -> None:
    with run.writer("t") as writer:
        writer.send_many([batch(number) for number in range(5)])
    assert live(run, Worker(run, 2, fail_with(KeyboardInterrupt())), 5) == [KeyboardInterrupt] * 5
    worker = Worker(run, -1, fail_with(KeyboardInterrupt()))
    assert live(run, worker, 1) == []
    assert worker.done == [0, 1, 2, 3, 4]
    assert letters(run) == []
