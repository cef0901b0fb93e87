"""A process that was forked: it may not use what its parent has opened, and harms none of it."""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from ticklake import BatchInfo, Database
from ticklake.errors import DatabaseForked, DatabaseInUseAtFork, DatabaseMoved, QueueInUse
from ticklake.events import Event, EventBus, IndexerQueue
from ticklake.topics import Run


def in_a_child(act: Callable[[], object]) -> None:
    """Does `act` in a forked process, which then ends like any other: its objects are freed."""
    readable, writable = os.pipe()
    child = os.fork()
    if not child:
        try:
            act()
            os.write(writable, b"done")
        except BaseException:
            os.write(writable, traceback.format_exc().encode()[-4000:])
        finally:
            os._exit(0)
    os.close(writable)
    said = b""
    while part := os.read(readable, 4096):
        said += part
    os.close(readable)
    os.waitpid(child, 0)
    assert said == b"done", said.decode()


@contextmanager
def child_in_steps(steps: Callable[[], Generator[None, None, None]]) -> Iterator[Callable[[], None]]:
    """Forks a process that does the next step each time that the function is called; the last one when it ends."""
    orders, said = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(orders[1])
            for _ in steps():
                os.write(said[1], b".")
                if not os.read(orders[0], 1):
                    break
            os.write(said[1], b"!")
        except BaseException:
            os.write(said[1], traceback.format_exc().encode()[-4000:])
        finally:
            os._exit(0)
    os.close(orders[0])
    os.close(said[1])

    def step() -> None:
        os.write(orders[1], b".")
        answered()

    def answered(answer: bytes = b".") -> None:
        found = os.read(said[0], 4096)
        assert found == answer, found.decode()

    try:
        answered()
        yield step
        os.write(orders[1], b".")
        answered(b"!")
    finally:
        os.close(orders[1])
        os.close(said[0])
        os.waitpid(child, 0)


def refused(act: Callable[[], object]) -> None:
    with pytest.raises(DatabaseForked, match="Open it after the fork"):
        act()


def test_everything_of_the_parents_is_refused_in_a_child(database: Database, run: Run) -> None:
    with run.writer("t") as writer, run.reader("t", group="g") as reader, run.reader("t", group="g") as waiting:
        writer.send_many([BatchInfo(tick_start=1), BatchInfo(tick_start=2)])
        message = reader.receive()
        waiting.release([waiting.receive()])
        listener = run.listen("t")

        def use() -> None:
            refused(lambda: writer.send(BatchInfo()))
            refused(lambda: reader.ack(message))
            refused(lambda: waiting.poll(0))
            refused(lambda: listener.wait(0))
            refused(lambda: run.groups.list("t"))
            refused(lambda: run.transaction().__enter__())
            refused(lambda: run.reading().__enter__())
            refused(lambda: database.run("another"))
            listener.close()
            waiting.close()
            reader.close()
            writer.close()
            database.close()

        in_a_child(use)
        assert reader.ack(message), "the child has not given it back"
        writer.send(BatchInfo(tick_start=3))
        assert waiting.poll(5) is not None
        listener.wait(0)
        listener.close()


@pytest.mark.parametrize("freed", [True, False])
def test_a_child_that_ends_leaves_the_connections_of_its_parent(run: Run, freed: bool) -> None:
    with run.writer("t") as writer, run.reader("t", group="g") as reader:
        assert reader.poll(0) is None
        writer.send(BatchInfo(tick_start=1))

        def end() -> None:
            if freed:
                holders = [vars(writer), vars(reader), vars(run)]
                for holder in holders:
                    holder.clear()

        with run.transaction(durable=False) as transaction:
            in_a_child(end)
            transaction.execute("SELECT 1", {})
        with run.reading() as view:
            in_a_child(end)
            view.execute("SELECT 1", {})
        assert reader.poll(5) is not None
        writer.send(BatchInfo(tick_start=2))
        assert reader.poll(5) is not None


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_child_takes_no_socket_away(run: Run, tmp_path: Path, database_url: str) -> None:
    del database_url
    listener = run.listen("t")
    before = sorted(tmp_path.rglob("*-wake/*"))
    assert len(before) == 1
    in_a_child(listener.close)
    assert sorted(tmp_path.rglob("*-wake/*")) == before
    listener.close()


def test_a_child_can_open_the_database_itself(database_url: str) -> None:
    run_id = f"20251014-143025-{uuid4().hex[:8]}"
    with Database(database_url) as database:
        database.run(run_id).writer("t").send(BatchInfo(tick_start=1))

        def send() -> None:
            with Database(database_url) as own:
                own.run(run_id).writer("t").send(BatchInfo(tick_start=2))

        in_a_child(send)
        assert len(database.run(run_id).browse("t")) == 2


def ticks_of(database_url: str, run_id: str) -> list[int]:
    with Database(database_url) as database:
        run = database.run(run_id)
        run.check()
        return sorted(message.opened().payload.tick_start for message in run.browse("t", limit=1000))


def sends(database_url: str, run_id: str, *ticks: int) -> Generator[None, None, None]:
    with Database(database_url) as own, own.run(run_id).writer("t") as writer:
        for tick in ticks:
            writer.send(BatchInfo(tick_start=tick))
            yield


@pytest.mark.parametrize("busy", [False, True])
def test_what_a_child_sends_is_stored_whatever_its_parent_closes(database_url: str, busy: bool) -> None:
    run_id = f"20251014-143025-{uuid4().hex[:8]}"
    inside, done = threading.Event(), threading.Event()
    with Database(database_url) as database:
        run = database.run(run_id)
        run.writer("t").send(BatchInfo(tick_start=0))
        assert len(run.browse("t")) == 1

        def work() -> None:
            with run.transaction():
                inside.set()
                done.wait(0.2)  # it ends while the fork waits for it

        thread = threading.Thread(target=work)
        if busy:
            thread.start()
            assert inside.wait(10)
        with child_in_steps(lambda: sends(database_url, run_id, 1, 3, 4)) as step:
            done.set()
            run.writer("t").send(BatchInfo(tick_start=2))
            if busy:
                thread.join(10)
            database.close()
            step()
            step()
    assert ticks_of(database_url, run_id) == [0, 1, 2, 3, 4]


def test_children_that_send_at_the_same_time_lose_nothing(database_url: str) -> None:
    run_id = f"20251014-143025-{uuid4().hex[:8]}"
    with Database(database_url) as database:
        database.run(run_id).writer("t").send(BatchInfo(tick_start=0))

        def grandchild() -> Generator[None, None, None]:
            with Database(database_url) as own:
                own.run(run_id).writer("t").send(BatchInfo(tick_start=3))
                with child_in_steps(lambda: sends(database_url, run_id, 4, 5)) as step:
                    yield
                    own.close()
                    step()

        with (
            child_in_steps(lambda: sends(database_url, run_id, 1, 6)) as one,
            child_in_steps(lambda: sends(database_url, run_id, 2, 7)) as two,
            child_in_steps(grandchild),
        ):
            database.close()
            one()
            two()
    assert ticks_of(database_url, run_id) == list(range(8))


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_file_that_is_in_use_at_the_fork_is_refused_in_the_child(database_url: str) -> None:
    run_id, other = (f"20251014-143025-{uuid4().hex[:8]}" for _ in range(2))
    with Database(database_url) as database:
        database.run(other).writer("t").send(BatchInfo(tick_start=0))

        def send() -> Generator[None, None, None]:
            for attempt in (send_here, lambda: in_a_child(send_here)):
                attempt()
                yield
            with Database(database_url) as own:
                own.run(other).writer("t").send(BatchInfo(tick_start=1))

        def send_here() -> None:
            with Database(database_url) as own, pytest.raises(DatabaseInUseAtFork, match="Fork outside"):
                own.run(run_id).writer("t").send(BatchInfo(tick_start=1))

        run = database.run(run_id)
        writer = run.writer("t")
        with run.transaction() as transaction, child_in_steps(send) as step:
            writer.send(BatchInfo(tick_start=0), connection=transaction)
            step()
    assert ticks_of(database_url, run_id) == [0]
    assert ticks_of(database_url, other) == [0, 1]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_no_file_is_opened_in_a_child_if_another_thread_was_at_work_at_the_fork(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have held one of SQLite's mutexes, which no file has alone: the child would wait for ever."""
    monkeypatch.setattr("ticklake.database.fork.FORK_SECONDS", 0.05)
    inside, done = threading.Event(), threading.Event()
    with Database(database_url) as database:
        busy, other = database.run("20251014-143025-busy"), database.run("20251014-143025-other")
        other.writer("t").send(BatchInfo(tick_start=0))

        def work() -> None:
            with busy.transaction():
                inside.set()
                done.wait(60)

        def send() -> None:
            with (
                Database(database_url) as own,
                pytest.raises(DatabaseInUseAtFork, match=r"during a transaction in .*BUSY"),
            ):
                own.run(other.id).writer("t").send(BatchInfo(tick_start=1))

        thread = threading.Thread(target=work)
        thread.start()
        try:
            assert inside.wait(10)
            in_a_child(send)
        finally:
            done.set()
            thread.join()
    assert ticks_of(database_url, other.id) == [0]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_file_that_was_moved_around_a_fork_is_not_made_anew(database_url: str, tmp_path: Path) -> None:
    with Database(database_url) as database:
        run = database.run("20251014-143025-moved")
        writer = run.writer("t")
        writer.send(BatchInfo(tick_start=0))
        (file,) = tmp_path.rglob("*.sqlite")
        in_a_child(lambda: file.rename(tmp_path / "elsewhere"))
        with pytest.raises(DatabaseMoved):
            writer.send(BatchInfo(tick_start=1))
        assert not file.exists()


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
def test_the_server_keeps_the_session_of_the_parent(run: Run, postgres_url: str, database_url: str) -> None:
    del database_url
    with run.transaction() as transaction:
        ((pid,),) = transaction.execute("SELECT pg_backend_pid()", {})
    in_a_child(lambda: None)
    with psycopg.connect(postgres_url) as administrator:
        found = administrator.execute("SELECT count(*) FROM pg_stat_activity WHERE pid = %s", [pid]).fetchone()
    assert found == (1,)
    with run.transaction() as transaction:
        assert transaction.execute("SELECT pg_backend_pid()", {}) == [(pid,)]


def test_an_event_queue_is_refused_in_a_child_and_goes_on_in_its_parent(tmp_path: Path) -> None:
    bus = EventBus()
    with IndexerQueue(tmp_path / "queue.db") as queue:
        queue.subscribe_to_eventbus(bus)
        bus.publish(Event("e-1", "t"))

        def use() -> None:
            refused(lambda: bus.publish(Event("e-2", "t")))
            refused(queue.get_next_batch)
            queue.stop()
            with pytest.raises(QueueInUse):
                IndexerQueue(tmp_path / "queue.db").start()

        in_a_child(use)
        bus.publish(Event("e-3", "t"))
        found: list[str] = []
        while "e-3" not in found:
            batch = queue.get_next_batch(60)
            assert batch is not None
            found += [event.event_id for event in batch.events]
        assert found == ["e-1", "e-3"]
