"""A SQLite file that is moved, deleted or replaced under a process that uses it: nothing is accepted into nowhere."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from ticklake import BatchInfo, Database
from ticklake.coordination.claims import FoundFile
from ticklake.coordination.coordinator import Coordinator
from ticklake.database.names import schema_name
from ticklake.database.url import open_backend
from ticklake.database.versions import package_versions
from ticklake.errors import DatabaseMoved, EventsNotDurable
from ticklake.events import Event, EventBus, IndexerQueue
from ticklake.ticks import TickRange
from ticklake.topics import Run

RUN_ID = "20251014-143025-550e8400"


def delete(path: Path) -> None:
    path.unlink()


def move(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))


def replace(path: Path) -> None:
    copy = path.with_name("copy")
    shutil.copyfile(path, copy)
    copy.replace(path)


def move_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("old"))


def move_all(path: Path) -> None:
    for file in list(path.parent.glob(f"{path.name}*")):
        if file.is_file():
            file.rename(path.with_name(f"old-{file.name}"))


def touch_wal(act: Callable[[Path], None]) -> Callable[[Path], None]:
    return lambda path: act(path.with_name(f"{path.name}-wal"))


def touch_shm(act: Callable[[Path], None]) -> Callable[[Path], None]:
    return lambda path: act(path.with_name(f"{path.name}-shm"))


ACTS = {
    "deleted": delete,
    "moved": move,
    "replaced": replace,
    "its folder moved": move_folder,
    "moved with its -wal": move_all,
    "-wal deleted": touch_wal(delete),
    "-wal replaced": touch_wal(replace),
    "-shm deleted": touch_shm(delete),
    "-shm replaced": touch_shm(replace),
}


@pytest.fixture(params=ACTS)
def lose(request: pytest.FixtureRequest) -> Callable[[Path], None]:
    return ACTS[request.param]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "db" / f"{schema_name(RUN_ID)}.sqlite"


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    with Database(f"sqlite:///{tmp_path / 'db'}") as database:
        yield database.run(RUN_ID)


@pytest.fixture
def at_first() -> Iterator[Callable[[str, Callable[[], None]], None]]:
    """Does something when the first connection comes to a statement: one that waits for a lock has come that far."""

    def prepare(statement: str, act: Callable[[], None]) -> None:
        left = [act]

        def trace(event: dict[str, object]) -> None:
            if event["sql"] == statement and left:
                left.pop()()

        apsw.connection_hooks.append(lambda connection: connection.trace_v2(apsw.SQLITE_TRACE_STMT, trace))

    yield prepare
    apsw.connection_hooks.clear()


def test_no_message_is_accepted_into_a_file_that_is_gone(run: Run, path: Path, lose: Callable[[Path], None]) -> None:
    with run.writer("t") as writer:
        writer.send(BatchInfo(tick_start=1))
        lose(path)
        for _ in range(2):
            with pytest.raises(DatabaseMoved, match="Stop every process"):
                writer.send(BatchInfo(tick_start=2))


def test_no_reader_goes_on_with_a_file_that_is_gone(run: Run, path: Path, lose: Callable[[Path], None]) -> None:
    with run.writer("t") as writer:
        writer.send_many([BatchInfo(tick_start=1), BatchInfo(tick_start=2)])
    reader = run.reader("t", group="g")
    message = reader.receive()
    lose(path)
    with pytest.raises(DatabaseMoved):
        reader.ack(message)
    with pytest.raises(DatabaseMoved):
        reader.poll(0)
    with pytest.raises(DatabaseMoved):
        run.groups.list("t")


def test_no_batch_is_claimed_in_a_file_that_is_gone(run: Run, path: Path) -> None:
    coordinator = Coordinator(run, "Indexer", step=1)
    coordinator.try_claim(FoundFile("a", TickRange(0, 9)))
    move(path)
    with pytest.raises(DatabaseMoved):
        coordinator.try_claim(FoundFile("b", TickRange(10, 19)))


@pytest.mark.warns("was moved, deleted or replaced", "stopped without writing")
def test_no_event_is_accepted_into_a_file_that_is_gone(tmp_path: Path, lose: Callable[[Path], None]) -> None:
    (tmp_path / "queue").mkdir()
    path = tmp_path / "queue" / "queue.db"
    bus, queue = EventBus(), IndexerQueue(path)
    queue.start()
    queue.subscribe_to_eventbus(bus)
    bus.publish(Event("e-1", "t"))
    lose(path)
    with pytest.raises(EventsNotDurable, match="was moved"):
        bus.publish(Event("e-2", "t"))
    queue.stop(graceful=False)


def test_no_message_is_accepted_if_the_file_goes_while_the_first_transaction_waits(
    tmp_path: Path, path: Path, lose: Callable[[Path], None], at_first: Callable[..., None]
) -> None:
    url = f"sqlite:///{tmp_path / 'db'}"
    with Database(url) as database:
        database.run(RUN_ID).writer("t").send(BatchInfo(tick_start=1))
    at_first("BEGIN IMMEDIATE", lambda: lose(path))
    with Database(url) as database:
        for _ in range(2):
            with pytest.raises(DatabaseMoved):
                database.run(RUN_ID).writer("t").send(BatchInfo(tick_start=2))


def test_nothing_is_read_if_the_file_goes_while_the_first_look_waits(
    run: Run, tmp_path: Path, path: Path, lose: Callable[[Path], None], at_first: Callable[..., None]
) -> None:
    run.writer("t").send(BatchInfo(tick_start=1))
    at_first("BEGIN", lambda: lose(path))
    backend = open_backend(f"sqlite:///{tmp_path / 'db'}")
    try:
        for _ in range(2):
            with pytest.raises(DatabaseMoved):
                package_versions(backend.schema(RUN_ID))
    finally:
        backend.close()


def test_no_event_queue_starts_if_its_file_goes_meanwhile(
    tmp_path: Path, lose: Callable[[Path], None], at_first: Callable[..., None]
) -> None:
    (tmp_path / "queue").mkdir()
    path = tmp_path / "queue" / "queue.db"
    with IndexerQueue(path) as queue:
        queue.offer([Event("e-1", "t")]).wait()
    at_first("BEGIN IMMEDIATE", lambda: lose(path))
    with pytest.raises(DatabaseMoved):
        IndexerQueue(path).start()


def test_a_link_that_leads_elsewhere_by_the_first_transaction_is_noticed(
    tmp_path: Path, path: Path, at_first: Callable[..., None]
) -> None:
    path.parent.mkdir()
    path.symlink_to(tmp_path / "here")

    def lead_elsewhere() -> None:
        path.unlink()
        path.symlink_to(tmp_path / "elsewhere")

    at_first("BEGIN IMMEDIATE", lead_elsewhere)
    with Database(f"sqlite:///{path.parent}") as database, pytest.raises(DatabaseMoved):
        database.run(RUN_ID).writer("t")


def test_who_never_got_into_a_file_that_went_harms_nothing_in_the_new_one(
    tmp_path: Path, path: Path, at_first: Callable[..., None]
) -> None:
    url = f"sqlite:///{tmp_path / 'db'}"
    with Database(url) as database:
        database.run(RUN_ID).writer("t").send(BatchInfo(tick_start=1))
    new = Database(url)

    def take_over() -> None:
        move_all(path)
        new.run(RUN_ID).writer("t").send(BatchInfo(tick_start=2))

    at_first('pragma "user_version"', take_over)
    with Database(url) as old, pytest.raises(DatabaseMoved):
        old.run(RUN_ID).writer("t")
    assert path.with_name(f"{path.name}-wal").exists()
    assert [one.opened().payload.tick_start for one in new.run(RUN_ID).browse("t")] == [2]  # type: ignore[union-attr]
    new.close()


def test_a_file_that_is_put_back_goes_on(run: Run, path: Path) -> None:
    with run.writer("t") as writer:
        writer.send(BatchInfo(tick_start=1))
        path.rename(path.with_name("elsewhere"))
        with pytest.raises(DatabaseMoved):
            writer.send(BatchInfo(tick_start=2))
        path.with_name("elsewhere").rename(path)
        writer.send(BatchInfo(tick_start=3))
    assert {1, 3} <= {stored.opened().payload.tick_start for stored in run.browse("t")}  # type: ignore[union-attr]


def test_who_still_has_the_old_file_harms_nothing_in_the_new_one(tmp_path: Path, path: Path) -> None:
    """To close a file checkpoints its -wal and removes it by its name, which is the new file's by now."""
    url = f"sqlite:///{tmp_path / 'db'}"
    with Database(url) as old:
        old.run(RUN_ID).writer("t").send(BatchInfo(tick_start=1))
        move_all(path)
        new = Database(url)
        new.run(RUN_ID).writer("t").send(BatchInfo(tick_start=2))
        with pytest.raises(DatabaseMoved):
            old.run(RUN_ID).writer("t").send(BatchInfo(tick_start=3))
    assert path.with_name(f"{path.name}-wal").exists()
    new.run(RUN_ID).writer("t").send(BatchInfo(tick_start=4))
    new.close()
    with Database(url) as again:
        stored = again.run(RUN_ID).browse("t")
        assert [one.opened().payload.tick_start for one in stored] == [2, 4]  # type: ignore[union-attr]


def test_a_reader_that_came_before_the_wal_goes_on(tmp_path: Path, path: Path):
    url = f"sqlite:///{tmp_path / 'db'}"
    with Database(url) as database:
        database.run(RUN_ID).writer("t").send(BatchInfo(tick_start=0))
    restored = apsw.Connection(str(path))
    restored.pragma("journal_mode", "DELETE")  # as after .dump and restore
    restored.close()
    backend = open_backend(url)
    try:
        schema = backend.schema(RUN_ID)
        before = package_versions(schema)
        schema.prepare("ticklake.topics")
        assert package_versions(schema) == before
    finally:
        backend.close()
