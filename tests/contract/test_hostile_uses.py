"""Misuse and bad luck around a transaction: nothing is stored where it does not belong, and nothing is stored twice."""

from __future__ import annotations

import os
from contextlib import ExitStack, closing
from pathlib import Path
from uuid import uuid4

import apsw
import psycopg
import pytest

from ticklake import BatchInfo, Database
from ticklake.consumer import IdempotentConsumer
from ticklake.database import Transaction
from ticklake.database.names import schema_name
from ticklake.errors import BadEvent, OtherDatabase, QueueInUse, ReadingOnly, TransactionOver
from ticklake.events import Event, IndexerQueue
from ticklake.text import storable
from ticklake.topics import Run

HOSTILE = ("nul \x00 byte", "half a pair \udcff")


@pytest.mark.warns("DEAD_LETTER", "FAILED", "ATTEMPT_FAILED")
@pytest.mark.parametrize("text", HOSTILE)
def test_an_error_of_any_text_becomes_a_dead_letter(run: Run, text: str, caplog: pytest.LogCaptureFixture) -> None:
    done: list[int] = []

    def handle(payload: BatchInfo, transaction: Transaction) -> None:
        if payload.tick_start == 1:
            raise ValueError(text)
        done.append(payload.tick_start)

    with run.writer("t") as writer:
        writer.send_many([BatchInfo(tick_start=1), BatchInfo(tick_start=2)])
    with IdempotentConsumer(run, "t", "g", handle, max_delivery_attempts=1) as consumer:
        consumer.run_until_caught_up()
    assert done == [2]
    (letter,) = run.dead_letters.list()
    assert text.partition(" ")[0] in letter.error
    assert run.claims.list() == []
    told = [*caplog.messages, *(one.message for one in consumer.monitor.errors)]
    assert len(told) == 3
    for one in told:
        assert one == storable(one)


@pytest.mark.warns("DEAD_BATCH")
@pytest.mark.parametrize("text", HOSTILE)
def test_a_batch_of_events_that_fails_with_any_text_is_set_aside(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    with IndexerQueue(tmp_path / "queue.db", max_attempts=1) as queue:
        queue.offer([Event("e", "t")]).wait()
        batch = queue.get_next_batch(30)
        assert batch is not None
        assert queue.mark_batch_failed(batch.batch_id, ValueError(text))
        (dead,) = queue.dead_batches()
        assert text.partition(" ")[0] in dead.error
        for one in (*caplog.messages, *(one.message for one in queue.monitor.errors)):
            assert one == storable(one)


def test_a_transaction_that_is_over_takes_nothing_more(database: Database, run: Run) -> None:
    other = database.run(f"20251014-143025-{uuid4().hex[:8]}")
    with run.writer("t") as writer, other.writer("t"):
        with run.transaction() as over:
            pass
        with pytest.raises(ZeroDivisionError), run.transaction() as undone:
            raise ZeroDivisionError
        for transaction in (over, undone):
            for act in (
                lambda tx: writer.send(BatchInfo(), connection=tx),
                lambda tx: tx.execute("SELECT 1", {}),
                lambda tx: tx.execute_many("SELECT 1", [{}]),
                lambda tx: tx.execute_script("SELECT 1"),
                lambda tx: tx.notify("t"),
                lambda tx: tx.after_commit(lambda: None),
            ):
                with pytest.raises(TransactionOver), other.transaction():
                    act(transaction)
    assert run.browse("t") == other.browse("t") == []


def test_a_transaction_of_another_database_is_refused(database_url: str, tmp_path: Path) -> None:
    run_id = f"20251014-143025-{uuid4().hex[:8]}"
    with Database(database_url) as one, Database(f"sqlite:///{tmp_path / 'other'}") as two:
        writer, reader = one.run(run_id).writer("t"), two.run(run_id).reader("t", group="g")
        with two.run(run_id).transaction() as transaction, pytest.raises(OtherDatabase):
            writer.send(BatchInfo(), connection=transaction)
        reader.close()
        writer.close()


def test_a_repeated_ack_is_counted_once(run: Run) -> None:
    with run.writer("t") as writer, run.reader("t", group="g") as reader:
        writer.send(BatchInfo())
        message = reader.receive()
        assert reader.ack(message) and reader.ack(message)
        assert reader.ack_many([message, message]) == [True, True]
        with run.transaction() as transaction:
            assert reader.ack_many([message], connection=transaction) == [True]
        for monitor in (reader.monitor, run.monitor):
            assert monitor.counter("messages_acknowledged").value == 1


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("problem", [PermissionError, OSError])
def test_a_wake_up_that_cannot_be_sent_fails_no_send(
    run: Run, database_url: str, monkeypatch: pytest.MonkeyPatch, problem: type[OSError]
) -> None:
    del database_url

    def refuse(*_: object, **__: object) -> list[str]:
        raise problem

    with run.writer("t") as writer, run.reader("t", group="g") as reader:
        assert reader.poll(0.01) is None
        with monkeypatch.context() as patch:
            patch.setattr(os, "listdir", refuse)
            writer.send(BatchInfo())
        with monkeypatch.context() as patch:
            patch.setattr("ticklake.database.sqlite.wakeups._datagrams", refuse)
            writer.send(BatchInfo())
        assert len(reader.poll_many(10, 5)) == 2
    assert len(run.browse("t")) == 2


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_folder_for_wake_ups_that_cannot_be_made_stops_no_reader(
    run: Run, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    del database_url

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    with run.writer("t") as writer, run.reader("t", group="g") as reader:
        writer.send(BatchInfo())
        with monkeypatch.context() as patch:
            patch.setattr(Path, "mkdir", refuse)
            assert reader.poll(5) is not None
            assert reader.poll(0.01) is None


@pytest.mark.warns("after the commit")
def test_what_fails_after_a_commit_does_not_look_like_a_failed_commit(run: Run) -> None:
    done: list[int] = []

    def fail() -> None:
        raise OSError("no wake-up")

    with run.transaction() as transaction:
        transaction.after_commit(fail)
        transaction.after_commit(lambda: done.append(1))
    assert done == [1]


@pytest.mark.warns("whose file is named", "has another run in its comment")
def test_a_copy_of_a_run_is_not_another_run(database: Database, run: Run, database_url: str) -> None:
    """A backup beside the file, a schema that was renamed, one of somebody else: the run is listed once."""
    run.topics()
    name = schema_name(run.id)
    with ExitStack() as stack:
        if database_url.startswith("sqlite"):
            file = next(Path(database_url.removeprefix("sqlite:///")).glob("*.sqlite"))
            copy = stack.enter_context(closing(apsw.Connection(str(file))))
            copy.execute("VACUUM INTO ?", (str(file.with_stem(f"{file.stem}_BACKUP")),))
        else:
            other = stack.enter_context(psycopg.connect(database_url, autocommit=True))
            for schema, comment in ((f"{name}_OLD", run.id), (f"SIM_X{name[-8:]}", " ")):
                other.execute(f'CREATE SCHEMA "{schema}"')
                stack.callback(other.execute, f'DROP SCHEMA "{schema}"')
                other.execute(f"COMMENT ON SCHEMA \"{schema}\" IS '{comment}'")
        listed = database.runs()
        assert listed.count(run.id) == 1
        for run_id in database.runs():
            database.run(run_id, create=False)


def test_two_names_of_a_queue_are_one_queue(tmp_path: Path) -> None:
    link = tmp_path / "current.db"
    with IndexerQueue(tmp_path / "queue.db") as queue:
        queue.offer([Event("e", "t")]).wait()
        link.symlink_to(tmp_path / "queue.db")
        with pytest.raises(QueueInUse):
            IndexerQueue(link).start()


def test_an_event_comes_out_again_or_is_refused(tmp_path: Path) -> None:
    """However deep its payload is, and whatever number its time is: no event takes others along."""
    accepted = []
    with IndexerQueue(tmp_path / "queue.db") as queue:
        for depth in (1, 99, 100, 101, 500, 900, 980, 985, 990, 995, 2000):
            payload: object = "[[[{{{"
            for level in range(depth):
                payload = [payload] if level % 2 else {"[": payload}
            try:
                queue.offer([Event(f"e{depth}", "t", payload)])
                accepted.append(f"e{depth}")
            except BadEvent:
                pass
        for number in (2**53 + 1, 1_700_000_000_000_000_000, True):
            queue.offer([Event(f"n{number}", "t", timestamp=number)])
            accepted.append(f"n{number}")
        for bad in (10**400, float("nan")):
            with pytest.raises(BadEvent):
                queue.offer([Event("bad", "t", timestamp=bad)])
        queue.offer([Event("last", "t")]).wait()
        batch = queue.get_next_batch(30)
        assert batch is not None
        assert [event.event_id for event in batch.events] == [*accepted, "last"]
        assert accepted[:3] == ["e1", "e99", "e100"]
        assert all(isinstance(event.timestamp, float) for event in batch.events)


def test_nothing_can_be_written_in_a_view(run: Run) -> None:
    with run.writer("t") as writer:
        with pytest.raises(ReadingOnly, match="Use `transaction"), run.reading() as view:
            writer.send(BatchInfo(), connection=view)
        with pytest.raises(ReadingOnly), run.reading() as view:
            view.execute_script("CREATE TABLE mine (x integer)")
        writer.send(BatchInfo())
    assert len(run.browse("t")) == 1
