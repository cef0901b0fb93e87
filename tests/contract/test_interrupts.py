"""An interrupt at any byte code leaves no open transaction, no lock that nobody holds, and no lost connection."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from interrupting import OURS, everywhere

from ticklake import BatchInfo, Database
from ticklake.database import Transaction
from ticklake.events import Event, IndexerQueue
from ticklake.topics import Run, TopicReader

DATABASE = f"{OURS}/database/"
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
def run(database: Database, monkeypatch: pytest.MonkeyPatch) -> Run:
    for module in ("sqlite.run_file.LOCK_SECONDS", "postgres.backend.POOL_SECONDS"):
        monkeypatch.setattr(f"ticklake.database.{module}", 2.0)
    return database.run(f"20251014-143025-{uuid4().hex[:8]}")


def elsewhere(act: Callable[[], object]) -> None:
    """Another thread can do it, too, and soon."""
    problems: list[BaseException] = []

    def attempt() -> None:
        try:
            act()
        except BaseException as error:
            problems.append(error)

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive(), "another thread waits for ever"
    assert not problems, problems


def write(run: Run) -> None:
    with run.transaction(durable=False) as transaction:
        transaction.execute("SELECT 1", {})


def look(run: Run) -> None:
    with run.reading() as view:
        view.execute("SELECT 1", {})


def fail(run: Run) -> None:
    with pytest.raises(ZeroDivisionError), run.transaction(durable=False) as transaction:
        transaction.execute("SELECT 1", {})
        1 / 0  # noqa: B018


def nest(run: Run) -> None:
    def inner(transaction: Transaction) -> None:
        with transaction.savepoint():
            transaction.execute("SELECT 1", {})

    with run.transaction(durable=False) as transaction:
        inner(transaction)


@pytest.mark.parametrize("every", [41, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("act", [write, look, fail, nest])
def test_a_transaction_interrupted_anywhere_leaves_nothing_behind(
    run: Run, act: Callable[[Run], None], every: int
) -> None:
    write(run)
    look(run)
    points = 0
    for _ in everywhere(lambda: act(run), DATABASE, every=every):
        points += 1
        # While the interrupt is handled, as a signal handler's caller would.
        write(run)
        look(run)
        if points % 10 == 0:
            elsewhere(lambda: write(run))
    assert points > 300 / every
    assert run._schema.pool()["active"] == 0
    write(run)


@pytest.mark.parametrize("every", [43, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("act", [write, look, fail, nest])
def test_an_interrupt_that_somebody_keeps_holds_nothing(run: Run, act: Callable[[Run], None], every: int) -> None:
    """An exception keeps its frames, and they keep what they worked with; a cycle keeps it until the collector runs."""
    write(run)
    look(run)
    kept: list[BaseException | None] = []
    gc.disable()
    try:
        for interrupt in everywhere(lambda: act(run), DATABASE, every=every):
            kept.append(interrupt)
            assert run._schema.pool()["active"] == 0, f"after {len(kept) * every} byte codes"
            write(run)
            look(run)
    finally:
        gc.enable()
    assert len(kept) > 300 / every


def test_the_first_use_of_a_database_interrupted_anywhere_can_be_repeated(database_url: str) -> None:
    run_id = f"20251014-143025-{uuid4().hex[:8]}"
    points = 0

    def open_and_write() -> None:
        with Database(database_url, max_pool_size=2) as database:
            write(database.run(run_id))

    for _ in everywhere(open_and_write, every=29, signals=True):
        points += 1
        if points % 10 == 0:
            open_and_write()
    assert points > 5
    open_and_write()


@pytest.mark.parametrize("signals", [True])
def test_a_send_interrupted_anywhere_lets_others_send(run: Run, signals: bool) -> None:
    with run.writer("t") as writer:
        writer.send(BatchInfo())
        points = 0
        for _ in everywhere(lambda: writer.send(BatchInfo()), signals=signals):
            points += 1
            if points % 5 == 0:
                elsewhere(lambda: writer.send(BatchInfo()))
        assert points > 50
        elsewhere(lambda: writer.send(BatchInfo()))


@pytest.mark.warns("STUCK_MESSAGE_REASSIGNED", "DEAD_LETTER")
def test_a_claim_and_an_ack_interrupted_anywhere_are_repeated(run: Run) -> None:
    with run.writer("t") as writer, run.reader("t", group="g", claim_timeout=0.2) as reader:
        writer.send_many([BatchInfo(tick_start=number) for number in range(20)])
        points = 0

        def receive() -> None:
            message = reader.poll(0)
            if message is not None:
                reader.ack(message)

        for _ in everywhere(receive, signals=True):
            points += 1
        assert points > 30
        elsewhere(lambda: reader.poll(0))


def test_a_reader_whose_close_is_interrupted_anywhere_can_be_closed_again(run: Run) -> None:
    with run.writer("t") as writer:
        writer.send_many([BatchInfo(tick_start=number) for number in range(3)])

    def opened() -> TopicReader:
        reader = run.reader("t", group="g", claim_timeout=0)
        assert len(reader.poll_many(10, 0)) == 3
        while reader._listener is None:
            reader.poll(0.01)
        return reader

    def close() -> None:
        readers[-1].close()

    readers = [opened()]
    for _ in everywhere(close, every=3, signals=True):
        close()
        assert run.claims.list() == []
        with pytest.raises((OSError, ValueError)):  # its sockets are closed; the connection is closed before them
            readers[-1]._listener.wait(0)  # type: ignore[union-attr]
        readers.append(opened())
    assert len(readers) > 10
    assert run.claims.list() == []


def test_a_database_whose_close_is_interrupted_anywhere_can_be_closed_again(database_url: str) -> None:
    def opened() -> Database:
        database = Database(database_url)
        for number in range(2):
            run = database.run(f"20251014-143025-0000000{number}")
            write(run)
            look(run)
        return database

    def close() -> None:
        databases[-1].close()

    databases = [opened()]
    for _ in everywhere(close, signals=True):
        close()
        connections = [run._schema.pool()["total"] for run in databases[-1].opened]
        assert connections == [0, 0], f"after {len(databases)} interrupts"
        databases.append(opened())
    assert len(databases) > 10


def test_a_queue_whose_stop_is_interrupted_anywhere_can_be_stopped_again(tmp_path: Path) -> None:
    def started() -> IndexerQueue:
        queue = IndexerQueue(tmp_path / "queue.db")
        queue.start()
        queue.offer([Event.new("t")])
        return queue

    def stop() -> None:
        queues[-1].stop()

    queues = [started()]
    for _ in everywhere(stop, signals=True):
        stop()
        queues.append(started())
    assert len(queues) > 10


def test_thousands_of_interrupts_leave_a_small_pool_as_it_was(postgres_url: str) -> None:
    with Database(postgres_url, max_pool_size=3) as database:
        run = database.run(f"20251014-143025-{uuid4().hex[:8]}")
        write(run)
        for _ in range(3):
            for _ in everywhere(lambda: write(run), DATABASE, every=5):
                pass
            assert run._schema.pool()["total"] <= 3
        with run.transaction() as one, run.transaction() as two, run.transaction() as three:
            pids = {t.execute("SELECT pg_backend_pid()", {})[0][0] for t in (one, two, three)}
        assert len(pids) == 3
        with psycopg.connect(postgres_url) as administrator:
            query = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%%' AND pid = ANY(%s)"
            assert administrator.execute(query, [list(pids)]).fetchone() == (0,)


def test_a_transaction_that_only_garbage_holds_is_rolled_back(run: Run, database_url: str) -> None:
    def make(transaction: Transaction) -> None:
        transaction.execute_script("CREATE TABLE of_nobody (id INTEGER)")

    def suspended() -> Generator[None, None, None]:
        with run.transaction() as transaction:
            make(transaction)
            yield

    def make_elsewhere() -> None:
        with Database(database_url) as other, other.run(run.id).transaction() as transaction:
            make(transaction)

    write(run)
    gc.disable()
    try:
        ring: list[object] = []
        work = suspended()
        next(work)
        ring += [ring, work]
        del ring, work
        assert run._schema.pool()["active"] == 1
        gc.collect()
    finally:
        gc.enable()
    assert run._schema.pool()["active"] == 0
    elsewhere(make_elsewhere)
