"""Runs are closed, deleted and archived on every database."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ticklake import BatchInfo, Database
from ticklake.contracts import RunCompleted
from ticklake.coordination.claims import FoundFile
from ticklake.coordination.coordinator import Coordinator
from ticklake.coordination.target import Target
from ticklake.defaults import BATCH_TOPIC, RUN_TOPIC
from ticklake.errors import (
    ArchiveConflict,
    ArchiveUnfinished,
    BadArchive,
    DatabaseUnavailable,
    DeletedMeanwhile,
    DeletionUnfinished,
    NotArchivable,
    RemovalUnderWay,
    RunInUse,
    RunIsLink,
    RunNotFound,
    RunNotInDatabase,
    RunStillRunning,
    TablesChanging,
)
from ticklake.indexers.runs.following import Following
from ticklake.indexers.runs.pending import Messages, unacknowledged
from ticklake.indexers.runs.unfinished import Unfinished
from ticklake.lives import life_of
from ticklake.monitoring import Monitor
from ticklake.node.begun import Begun
from ticklake.removal import RunPlaces, archive_run, contents_of, delete_run
from ticklake.services.closing import end_of, keep_open, record_close
from ticklake.services.earlier import EarlierRuns
from ticklake.services.reconciliation import ReconciliationService
from ticklake.storage import local
from ticklake.storage.files import Storage
from ticklake.ticks import TickRange
from ticklake.topics import Run

HOUR = 3600.0


@pytest.fixture
def made(maker: Any, run: Run) -> Any:
    """Three batch files of a run, of which the last has no message."""
    maker.run_id = run.id
    maker.metadata()
    infos = maker.batches(3, ticks=10, cells=1)
    with run.writer(BATCH_TOPIC) as writer:
        writer.send_many(infos[:2])
    return maker


@pytest.fixture
def places(made: Any, database: Database) -> RunPlaces:
    table = made.folder("organism_data") / "_delta_log"
    table.mkdir(parents=True)
    (table / "00000000000000000000.json").write_text("{}\n")
    return RunPlaces(made.run_id, made.storage, made.lake_folder, [database])


def close(maker: Any, cause: str = "command") -> None:
    record_close(maker.storage, maker.run_id, cause=cause)


def life(maker: Any) -> str:
    return str(life_of(maker.storage.read_completion(maker.run_id)))


def announced(run: Run) -> list[tuple[int, int]]:
    payloads = [message.opened().payload for message in run.browse(BATCH_TOPIC)]  # type: ignore[union-attr]
    return [(one.tick_start, one.tick_end) for one in payloads if isinstance(one, BatchInfo)]


def ends(run: Run) -> list[tuple[int, str]]:
    payloads = [message.opened().payload for message in run.browse(RUN_TOPIC)]  # type: ignore[union-attr]
    return [(one.last_tick, one.abandoned_by) for one in payloads if isinstance(one, RunCompleted)]


# At the restart of the producer


def earlier(maker: Any, database: Database, begun: Begun) -> EarlierRuns:
    return EarlierRuns(begun, database, BATCH_TOPIC, RUN_TOPIC)


def begun(maker: Any, tmp_path: Path, run_id: str | None = None) -> Begun:
    return Begun(tmp_path / "node", "lake", run_id or maker.run_id)


def test_a_restart_announces_the_files_of_the_earlier_run_and_closes_it_once(
    made: Any, database: Database, run: Run, tmp_path: Path
) -> None:
    begun(made, tmp_path).begin(made.storage.url)
    after = begun(made, tmp_path, "20251014-143026-bbbbbbbb")
    after.begin(made.storage.url)
    for _ in range(2):
        assert earlier(made, database, after).close_all(Monitor("test"))
    assert life(made) == "abandoned at tick 29"
    assert announced(run) == [(0, 9), (10, 19), (20, 29)]
    assert ends(run) == [(29, "restart")]
    assert after.earlier() == []


def test_a_run_that_has_ended_only_gets_the_messages_that_it_lacks(
    made: Any, database: Database, run: Run, tmp_path: Path
) -> None:
    made.storage.write_completion(RunCompleted(simulation_run_id=made.run_id, last_tick=29))
    begun(made, tmp_path).begin(made.storage.url)
    after = begun(made, tmp_path, "20251014-143026-bbbbbbbb")
    assert earlier(made, database, after).close_all(Monitor("test"))
    assert (life(made), ends(run), after.earlier()) == ("ended at tick 29", [(29, "")], [])
    assert announced(run) == [(0, 9), (10, 19), (20, 29)]


def test_runs_of_other_producers_and_of_a_copied_node_are_left_alone(
    made: Any, database: Database, tmp_path: Path
) -> None:
    begun(made, tmp_path).begin(made.storage.url)
    shutil.copytree(tmp_path / "node", tmp_path / "copy")
    for other in (Begun(tmp_path / "copy", "lake", "x"), Begun(tmp_path / "node", "another", "x")):
        assert other.earlier() == []
        assert earlier(made, database, other).close_all(Monitor("test"))
    assert life(made) == "running"


def test_runs_of_a_copy_at_the_same_path_are_left_alone(made: Any, database: Database, tmp_path: Path) -> None:
    node = tmp_path / "node"
    node.mkdir()
    (node / "lake.lock").touch()
    begun(made, tmp_path).begin(made.storage.url)
    assert Begun(node, "lake", "x").earlier()
    shutil.copytree(node, tmp_path / "copy")
    node.rename(tmp_path / "first")
    (tmp_path / "copy").rename(node)
    assert Begun(node, "lake", "x").earlier() == []
    assert earlier(made, database, Begun(node, "lake", "x")).close_all(Monitor("test"))
    assert life(made) == "running"


@pytest.mark.warns("Could not close run")
def test_a_run_that_cannot_be_closed_now_is_closed_later(
    made: Any, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(made, tmp_path).begin(made.storage.url)
    after, monitor = begun(made, tmp_path, "20251014-143026-bbbbbbbb"), Monitor("test")
    with monkeypatch.context() as away:
        away.setattr(Storage, "read_completion", _away)
        assert not earlier(made, database, after).close_all(monitor)
    assert earlier(made, database, after).close_all(monitor)
    assert life(made) == "abandoned at tick 29"


def _away(*_: object) -> None:
    raise DatabaseUnavailable(database="d", reason="it is away")


# By policy, after a silence


def reconciliation(made: Any, database: Database, **options: Any) -> ReconciliationService:
    return ReconciliationService(database, made.storage, abandon_after=HOUR, **options)


def silence(made: Any, seconds: float) -> Callable[[], float]:
    """The clock of somebody who looks so many seconds after the last file."""
    last = (Path(made.storage.url) / made.run_id).stat().st_mtime
    return lambda: last + seconds + 5


def test_a_run_is_closed_after_the_silence_and_not_before(made: Any, database: Database, run: Run) -> None:
    reconciliation(made, database, clock=silence(made, HOUR - 60)).reconcile_all()
    assert life(made) == "running"
    service = reconciliation(made, database, clock=silence(made, HOUR))
    service.reconcile_all()
    assert (life(made), ends(run)) == ("abandoned at tick 29", [(29, "silence")])
    assert announced(run) == [(0, 9), (10, 19), (20, 29)]
    service.reconcile_all()
    assert service.monitor.counter("runs_abandoned").value == 1


@pytest.mark.parametrize("has_times", [True, False])
def test_a_run_that_its_producer_has_opened_again_is_closed_after_the_next_silence(
    made: Any, database: Database, run: Run, has_times: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [silence(made, 2 * HOUR)()]
    if not has_times:  # as in an object store
        monkeypatch.setattr(made.storage, "changed_at", lambda _: None)
        clock[0] = time.time() + 2 * HOUR
    service = reconciliation(made, database, clock=lambda: clock[0])
    service.reconcile_all()
    assert life(made) == "abandoned at tick 29"
    made.batch(30, 39)
    assert made.storage.remove_completion(made.storage.read_completion(made.run_id))
    service.reconcile_all()
    assert life(made) == "abandoned at tick 39"
    assert ends(run) == [(29, "silence"), (39, "silence")]


def test_the_run_of_the_node_itself_and_runs_without_the_option_are_not_closed(made: Any, database: Database) -> None:
    later = silence(made, 10 * HOUR)
    reconciliation(made, database, clock=later, own=made.run_id).reconcile_all()
    ReconciliationService(database, made.storage, clock=later).reconcile_all()
    assert life(made) == "running"


# Deleting


def test_a_deleted_run_is_nowhere(places: RunPlaces, made: Any, database: Database, run: Run, tmp_path: Path) -> None:
    close(made)
    contents = contents_of(places)
    assert (contents.state, contents.files, contents.other_files) == ("abandoned", 3, 2)
    assert [one.name for one in contents.tables] == ["organism_data"] and len(contents.databases) == 1
    assert delete_run(places) == contents
    assert made.run_id not in database.runs()
    assert made.storage.runs() == made.storage.leaving_runs() == []
    assert list(made.lake_folder.iterdir()) == []
    assert [path.name for path in tmp_path.glob("db/*")] == []
    with pytest.raises(RunNotInDatabase):
        database.run(made.run_id, create=False)
    with pytest.raises(RunNotFound):
        delete_run(places)


class StillIndexed(Storage):
    """A storage. While its files are removed, an indexer that has just been at work makes the table again."""

    table: Path

    def remove_run(self, run_id: str) -> None:
        super().remove_run(run_id)
        self.table.mkdir(parents=True)


def test_a_table_that_an_indexer_makes_again_meanwhile_is_removed_too(places: RunPlaces, made: Any) -> None:
    close(made)
    storage = StillIndexed(made.storage.url)
    storage.table = made.folder("organism_data")
    delete_run(RunPlaces(made.run_id, storage, places.lake, places.databases))
    assert list(made.lake_folder.iterdir()) == []


def test_a_run_can_be_begun_again_after_it_was_deleted(places: RunPlaces, made: Any, database: Database) -> None:
    close(made)
    delete_run(places)
    with database.run(made.run_id).writer(BATCH_TOPIC) as writer:
        writer.send(made.batch(0, 9))
    assert announced(database.run(made.run_id)) == [(0, 9)]
    assert life(made) == "running"


def test_a_running_run_is_not_deleted_unless_forced(places: RunPlaces, made: Any, database: Database) -> None:
    with pytest.raises(RunStillRunning, match=f"ticklake runs close {made.run_id}"):
        delete_run(places)
    assert made.storage.runs() == [made.run_id] and made.run_id in database.runs()
    delete_run(places, force=True)
    assert made.storage.runs() == [] and made.run_id not in database.runs()


def test_a_run_with_live_claims_is_not_deleted(
    places: RunPlaces, made: Any, database: Database, run: Run, pass_time: Callable[[float], None]
) -> None:
    close(made)
    run.reader(BATCH_TOPIC, group="g", claim_timeout=60).poll_many(1, timeout=0)
    with pytest.raises(RunInUse, match="1 claims, for example of"):
        delete_run(places)
    assert made.storage.runs() == [made.run_id] and made.storage.leaving_runs() == []
    pass_time(61)
    delete_run(places)
    assert made.storage.runs() == []


def test_a_run_with_live_claims_of_a_coordinator_is_not_deleted(places: RunPlaces, made: Any, run: Run) -> None:
    close(made)
    coordinator = Coordinator(run, "DummyIndexer", step=1, table=Target("id"))
    coordinator.claim([FoundFile("batch_0000000000_0000000009.pb.zst", TickRange(0, 9))], 1)
    with pytest.raises(RunInUse, match="coordinator"):
        delete_run(places)
    assert made.storage.runs() == [made.run_id]


def test_a_run_that_is_only_in_a_database_is_deleted(database: Database, run: Run, tmp_path: Path) -> None:
    run.topics()
    places = RunPlaces(run.id, Storage(tmp_path / "storage"), None, [database])
    delete_run(places)
    assert run.id not in database.runs()


def test_a_run_with_a_message_just_now_is_not_deleted_before_its_first_file(
    database: Database, run: Run, tmp_path: Path
) -> None:
    with run.writer(BATCH_TOPIC) as writer:
        writer.send(BatchInfo(simulation_run_id=run.id))
    with pytest.raises(RunStillRunning):
        delete_run(RunPlaces(run.id, Storage(tmp_path / "storage"), None, [database]))


def test_only_the_named_run_is_dropped(database: Database, run: Run) -> None:
    other = database.run(f"{run.id}-2")
    for one in (run, other):
        one.topics()
    assert [database.drop(run.id), database.drop(run.id)] == [True, False]
    assert other.id in database.runs()
    database.drop(other.id)


class Idle:
    """An indexer of one run that has nothing to do."""

    def __init__(self) -> None:
        self.monitor, self.error, self.asked = Monitor("child"), None, False

    state = property(lambda self: "stopped" if self.asked else "running")
    stopping = property(lambda self: self.asked)
    idle_seconds = 1.0

    def start(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def release(self) -> None: ...

    def ask_to_stop(self) -> None:
        self.asked = True

    def join(self, timeout: float | None = None) -> bool:
        return self.asked


@pytest.mark.warns("is not in the storage any more")
def test_an_indexer_leaves_a_deleted_run_and_does_not_pick_it_up_again(
    places: RunPlaces, made: Any, database: Database, run: Run
) -> None:
    monitor = Monitor("indexer")
    unfinished = Unfinished(
        made.storage, Messages(database, lambda one: unacknowledged(one, BATCH_TOPIC, "g")), "all", monitor
    )
    following = Following(unfinished, lambda _: Idle(), monitor)  # type: ignore[arg-type,return-value]
    following.step(0.0)
    assert list(following.children) == [made.run_id]
    close(made)
    made.storage.mark_leaving(made.run_id, "")
    following.step(100.0)
    following.step(200.0)
    assert following.children == {}
    delete_run(places)
    assert not following.step(300.0)


@pytest.mark.warns("is not in the storage any more")
def test_an_indexer_sees_the_mark_of_a_second_deletion_at_once(made: Any, database: Database, run: Run) -> None:
    made.storage.mark_leaving("20250101-000000-aaaaaaaa", "")  # its folder exists from now on
    made.storage.unmark_leaving("20250101-000000-aaaaaaaa")
    monitor = Monitor("indexer")
    unfinished = Unfinished(
        made.storage, Messages(database, lambda one: unacknowledged(one, BATCH_TOPIC, "g")), "all", monitor
    )
    following = Following(unfinished, lambda _: Idle(), monitor)  # type: ignore[arg-type,return-value]
    for now in (0.0, 5.0, 6.0):
        following.step(now)
    assert list(following.children) == [made.run_id]
    close(made)
    made.storage.mark_leaving(made.run_id, "")
    following.step(7.0)
    following.step(7.5)
    assert following.children == {}


# Archiving


def test_an_archived_run_is_whole_there_and_gone_here(
    places: RunPlaces, made: Any, database: Database, tmp_path: Path
) -> None:
    close(made)
    before = {key: made.storage.read_raw(key) for key, _ in made.storage.everything(made.run_id)}
    (Path(made.storage.url) / made.run_id / ".batch.1-abcd.tmp").write_bytes(b"left by a killed writer")
    to = Storage(tmp_path / "archive")
    done = archive_run(places, to, tmp_path / "tables")
    assert {key: to.read_raw(key) for key, _ in to.everything(made.run_id)} == before
    assert (done.files, done.table_files) == (5, 1)
    assert (tmp_path / "tables" / made.run_id / "organism_data" / "_delta_log").is_dir()
    assert made.storage.runs() == [] and made.run_id not in database.runs()
    assert str(life_of(to.read_completion(made.run_id))) == "abandoned at tick 29"


def test_nothing_is_deleted_if_the_archive_has_another_file(places: RunPlaces, made: Any, tmp_path: Path) -> None:
    close(made)
    to = Storage(tmp_path / "archive")
    to.write_raw(f"{made.run_id}/batch_0000000010_0000000019.pb.zst", b"another")
    with pytest.raises(ArchiveConflict, match="batch_0000000010_0000000019"):
        archive_run(places, to)
    assert made.storage.runs() == [made.run_id] and contents_of(places).files == 3


def test_what_cannot_be_archived_is_named(places: RunPlaces, made: Any, tmp_path: Path) -> None:
    close(made)
    odd = Path(made.storage.url) / made.run_id / "my notes.txt"
    odd.write_text("kept")
    with pytest.raises(NotArchivable, match=r"my notes\.txt"):
        archive_run(places, Storage(tmp_path / "archive"))
    assert odd.read_text() == "kept"


def test_an_archive_is_elsewhere(places: RunPlaces, made: Any, tmp_path: Path) -> None:
    close(made)
    for inside in (made.storage.url, Path(made.storage.url) / "old", made.lake_folder / "old"):
        with pytest.raises(BadArchive, match="inside of the storage or the lake"):
            archive_run(places, Storage(inside))
    with pytest.raises(BadArchive, match="two directories"):
        archive_run(places, Storage(tmp_path / "a"), tmp_path / "a")


def test_an_unfinished_archive_is_finished_before_anything_else(places: RunPlaces, made: Any, tmp_path: Path) -> None:
    close(made)
    to = Storage(tmp_path / "archive")
    made.storage.mark_leaving(made.run_id, f'{{"archive": "{to.url}"}}')
    with pytest.raises(ArchiveUnfinished, match=f"ticklake runs archive {made.run_id} {to.url}"):
        delete_run(places)
    with pytest.raises(ArchiveUnfinished):
        archive_run(places, Storage(tmp_path / "elsewhere"))
    assert archive_run(places, to).files == 5
    assert made.storage.leaving_runs() == []


def test_what_is_left_of_a_deletion_is_not_archived(places: RunPlaces, made: Any, tmp_path: Path) -> None:
    close(made)
    made.storage.mark_leaving(made.run_id, '{"archive": ""}')
    (Path(made.storage.url) / made.run_id / "batch_0000000010_0000000019.pb.zst").unlink()
    to = Storage(tmp_path / "archive")
    with pytest.raises(DeletionUnfinished, match=f"ticklake runs delete {made.run_id}"):
        archive_run(places, to)
    assert to.runs() == []
    delete_run(places)
    assert made.storage.leaving_runs() == []


class Meanwhile(Storage):
    """An archive. After a number of written files, something happens to the run."""

    def __init__(self, place: Path, files: int, happens: Callable[[], object]) -> None:
        super().__init__(place)
        self._left, self._happens = files, happens

    def write_raw(self, key: str, data: bytes) -> None:
        super().write_raw(key, data)
        self._left -= 1
        if self._left == 0:
            self._happens()


@pytest.mark.parametrize("files", [1, 4])
def test_an_archive_notices_that_the_run_is_deleted_meanwhile(
    files: int, places: RunPlaces, made: Any, tmp_path: Path
) -> None:
    close(made)
    with pytest.raises(DeletedMeanwhile, match="may not have all of its files"):
        archive_run(places, Meanwhile(tmp_path / "archive", files, lambda: delete_run(places)))
    assert made.storage.leaving_runs() == []


def test_an_archive_notices_a_deletion_that_is_under_way(places: RunPlaces, made: Any, tmp_path: Path) -> None:
    close(made)

    def half_deleted() -> None:
        made.storage.mark_leaving(made.run_id, '{"archive": ""}')
        for key, _ in made.storage.everything(made.run_id)[1:]:
            (Path(made.storage.url) / key).unlink()

    with pytest.raises(DeletedMeanwhile):
        archive_run(places, Meanwhile(tmp_path / "archive", 1, half_deleted))
    assert made.storage.leaving_runs() == [made.run_id]


def open_again(made: Any) -> None:
    """What a producer does that was only silent."""
    made.batch(30, 39)
    assert keep_open(made.storage, made.run_id, [30, 39])


@pytest.mark.parametrize("files", [1, 4])
def test_a_run_that_is_opened_again_while_it_is_archived_is_not_archived(
    files: int, places: RunPlaces, made: Any, tmp_path: Path
) -> None:
    close(made, "silence")
    with pytest.raises(RunStillRunning, match="is running: its producer may still write"):
        archive_run(places, Meanwhile(tmp_path / "archive", files, lambda: open_again(made)))
    assert (life(made), made.storage.leaving_runs(), contents_of(places).files) == ("running", [], 4)
    close(made)
    to = Storage(tmp_path / "archive")
    assert archive_run(places, to).files == 6
    assert str(life_of(to.read_completion(made.run_id))) == "abandoned at tick 39"


def test_a_record_that_is_replaced_while_the_run_is_archived_is_archived(
    places: RunPlaces, made: Any, tmp_path: Path
) -> None:
    close(made, "silence")
    to = Meanwhile(tmp_path / "archive", 4, lambda: close(made, "command"))
    assert archive_run(places, to).files == 5
    found = to.read_completion(made.run_id)
    assert found is not None and found.abandoned_by == "command"


class BeforeMark(Storage):
    """A storage in which something happens just before a run is marked."""

    happens: Callable[[], object]

    def leaving(self, run_id: str, note: str) -> AbstractContextManager[str | None]:
        self.happens()
        return super().leaving(run_id, note)


def test_a_run_that_is_opened_again_at_the_last_moment_is_not_deleted(places: RunPlaces, made: Any) -> None:
    close(made, "silence")
    storage = BeforeMark(made.storage.url)
    storage.happens = lambda: open_again(made)
    with pytest.raises(RunStillRunning):
        delete_run(replace(places, storage=storage))
    assert (life(made), made.storage.leaving_runs(), contents_of(places).files) == ("running", [], 4)


class ReadsMark(Storage):
    """The storage of a producer. Something happens after it has looked whether the run is marked."""

    happens: Callable[[], object]

    def leaving_note(self, run_id: str) -> str | None:
        found = super().leaving_note(run_id)
        self.happens()
        return found


def test_a_run_that_is_opened_by_a_producer_who_has_not_seen_the_mark_is_not_deleted(
    places: RunPlaces, made: Any, eventually: Callable[..., None]
) -> None:
    close(made, "silence")
    known = made.storage.read_completion(made.run_id)
    producer, begun = ReadsMark(made.storage.url), []
    with ThreadPoolExecutor() as pool:

        def delete() -> None:
            begun.append(pool.submit(delete_run, replace(places, databases=[])))
            eventually(made.storage.leaving_runs)

        producer.happens = delete
        assert producer.remove_completion(known)
        with pytest.raises(RunStillRunning):
            begun[0].result()
    assert (life(made), made.storage.leaving_runs(), contents_of(places).files) == ("running", [], 3)


def test_a_producer_that_has_seen_the_mark_leaves_the_record(made: Any) -> None:
    close(made, "silence")
    known = made.storage.read_completion(made.run_id)
    made.storage.mark_leaving(made.run_id, "")
    assert not made.storage.remove_completion(known)
    assert not made.storage.replace_completion(known, end_of(made.run_id, 29))
    assert made.storage.read_completion(made.run_id) == known


def test_nobody_takes_a_new_mark_for_that_of_a_killed_command(
    places: RunPlaces, made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.storage.write_completion(end_of(made.run_id, 29))
    publish, others = local._publish, []

    def published(folder: int, temporary: str, name: str) -> None:
        publish(folder, temporary, name)
        with Storage(made.storage.url).leaving(made.run_id, "another") as found:
            others.append(found)

    with monkeypatch.context() as patch:
        patch.setattr(local, "_publish", published)
        with made.storage.leaving(made.run_id, "the first") as found:
            assert (found, others) == ("the first", [None])
    with made.storage.leaving(made.run_id, "after a crash") as found:
        assert found == "the first"


class WhileRemoved(Storage):
    """A storage in which another command acts while the files of a run are removed."""

    acts: Callable[[], object]

    def remove_run(self, run_id: str) -> None:
        self.acts()
        super().remove_run(run_id)


@pytest.mark.parametrize("force", [False, True])
def test_only_one_command_at_a_time_removes_a_run(force: bool, places: RunPlaces, made: Any, tmp_path: Path) -> None:
    close(made)
    storage, told = WhileRemoved(made.storage.url), []

    def others() -> None:
        for act in (
            lambda: delete_run(places, force=force),
            lambda: archive_run(places, Storage(tmp_path / "archive")),
        ):
            with pytest.raises((RemovalUnderWay, DeletionUnfinished)) as error:
                act()
            told.append(type(error.value))

    storage.acts = others
    delete_run(replace(places, storage=storage))
    assert told == [RemovalUnderWay, DeletionUnfinished]
    assert made.storage.runs() == made.storage.leaving_runs() == []


def test_a_run_that_another_command_has_just_deleted_is_gone(places: RunPlaces, made: Any) -> None:
    close(made)
    storage = BeforeMark(made.storage.url)

    def delete_first() -> None:
        storage.happens = lambda: None
        delete_run(replace(places, storage=Storage(made.storage.url)))

    storage.happens = delete_first
    with pytest.raises(RunNotFound):
        delete_run(replace(places, storage=storage))
    assert made.storage.leaving_runs() == []


@pytest.mark.parametrize("times", [1, 9])
def test_tables_whose_files_vanish_while_they_are_copied_are_copied_again(
    times: int, places: RunPlaces, made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close(made)
    old = made.lake_folder / made.run_id / "organism_data" / "old.parquet"
    old.touch()
    copy, left = shutil.copy2, iter(range(times - 1))

    def vacuumed_meanwhile(source: Path, target: Path) -> None:
        if source == old:
            old.unlink()
        try:
            copy(source, target)
        finally:
            if source == old and next(left, None) is not None:
                old.touch()

    monkeypatch.setattr("ticklake.removal.tables.shutil", SimpleNamespace(copy2=vacuumed_meanwhile))
    if times == 9:
        with pytest.raises(TablesChanging):
            archive_run(places, Storage(tmp_path / "archive"), tmp_path / "tables")
        assert contents_of(places).files == 3 and made.storage.leaving_runs() == []
    else:
        assert archive_run(places, Storage(tmp_path / "archive"), tmp_path / "tables").table_files == 1


def test_a_refused_command_leaves_the_mark_of_another_one(places: RunPlaces, made: Any, tmp_path: Path) -> None:
    close(made)

    def other() -> None:
        made.storage.mark_leaving(made.run_id, '{"archive": ""}')

    with pytest.raises(DeletionUnfinished):
        archive_run(places, Meanwhile(tmp_path / "archive", 4, other))
    assert made.storage.leaving_runs() == [made.run_id] and contents_of(places).files == 3


def test_the_storage_under_another_name_is_no_archive(places: RunPlaces, made: Any, tmp_path: Path) -> None:
    close(made)
    same = Storage(made.storage.url)
    same.url = str(tmp_path / "mounted")
    with pytest.raises(BadArchive, match="the storage itself"):
        archive_run(places, same)
    assert made.storage.runs() == [made.run_id] and contents_of(places).files == 3


def test_tables_behind_a_link_are_refused_before_anything_is_deleted(
    places: RunPlaces, made: Any, database: Database, tmp_path: Path
) -> None:
    close(made)
    tables = made.lake_folder / made.run_id
    shutil.move(tables, tmp_path / "other-disk")
    tables.symlink_to(tmp_path / "other-disk")
    for force in (False, True):
        with pytest.raises(RunIsLink, match="Nothing was deleted"):
            delete_run(places, force=force)
    with pytest.raises(RunIsLink):
        archive_run(places, Storage(tmp_path / "archive"))
    assert (tmp_path / "other-disk" / "organism_data" / "_delta_log").is_dir()
    assert made.storage.runs() == [made.run_id] and made.run_id in database.runs()


def test_a_running_run_is_not_archived(places: RunPlaces, tmp_path: Path) -> None:
    with pytest.raises(RunStillRunning):
        archive_run(places, Storage(tmp_path / "archive"))
