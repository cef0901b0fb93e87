"""The background duty: what was written and never announced is announced, once, and not too early."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ticklake import BatchInfo, MetadataInfo
from ticklake.completeness.completeness import Completeness
from ticklake.coordination.reconcile import announced
from ticklake.errors import DatabaseUnavailable, TopicAmbiguous
from ticklake.services import reconciliation
from ticklake.services.reconciliation import ReconciliationService
from ticklake.simulation import Ecosystem, SimulationSettings
from ticklake.storage.files import Storage
from ticklake.topics import Database, Run


@pytest.fixture
def put(run: Run, tmp_path: Path) -> Callable[[int], str]:
    def put(number: int) -> str:
        folder = tmp_path / "storage" / run.id
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"batch_{number}_{number}.pb").touch()
        return f"{run.id}/batch_{number}_{number}.pb"

    return put


@pytest.fixture
def duty(database: Database, tmp_path: Path) -> ReconciliationService:
    return ReconciliationService(database, Storage(tmp_path / "storage"), interval=0.01)


def told(run: Run) -> list[str]:
    return list(announced(run).keys)


def test_a_file_is_announced_at_the_second_look_and_once(
    duty: ReconciliationService, run: Run, put: Callable[[int], str]
):
    key = put(7)
    duty.reconcile_all()
    assert told(run) == [], "its writer may be about to announce it"
    duty.reconcile_all()
    assert told(run) == [key]
    duty.reconcile_all()
    assert announced(run).messages == 1
    assert duty.monitor.snapshot()["batches_announced"] == 1


def test_many_runs_leave_nothing_open(database: Database, tmp_path: Path):
    """A node with thousands of old runs would have thousands of open files."""
    storage = tmp_path / "storage"
    for number in range(10):
        (storage / f"20261101-120000-{number:08}").mkdir(parents=True)
        (storage / f"20261101-120000-{number:08}" / "batch_0_9.pb").touch()
    with database.branch() as branch:
        duty = ReconciliationService(branch, Storage(storage), abandon_after=3600, clock=lambda: time.time() + 10_000)
        duty.reconcile_all()
        duty.reconcile_all()
        assert branch.opened == []
        assert duty.monitor.snapshot()["runs_abandoned"] == 10
    for run_id in [f"20261101-120000-{number:08}" for number in range(10)]:
        assert told(database.run(run_id, create=False)) == [f"{run_id}/batch_0_9.pb"]


@pytest.mark.warns("was announced but is not in")
def test_a_listing_without_a_change_does_not_open_the_database(
    duty: ReconciliationService, run: Run, put: Callable[[int], str], monkeypatch: pytest.MonkeyPatch, eventually: Any
):
    """All folders are listed once a minute. With 10,000 old runs, opening each would cost most of a core."""
    opened: list[str] = []
    reconcile = duty._reconcile
    monkeypatch.setattr(duty, "_reconcile", lambda run_id: opened.append(run_id) or reconcile(run_id))

    def list_again() -> bool:
        opened.clear()
        duty._watches.clear()
        duty.reconcile_all()
        return not opened

    key = put(7)
    eventually(list_again)
    assert told(run) == [key]
    put(8)
    assert not list_again()
    eventually(list_again)
    with run.writer("batch-topic") as writer:
        writer.send(BatchInfo(simulation_run_id=run.id, storage_key=f"{run.id}/batch_9_9.pb"))
    eventually(lambda: not list_again())


def test_a_file_that_its_writer_announces_in_between_is_left_to_it(
    duty: ReconciliationService, run: Run, put: Callable[[int], str]
):
    key = put(7)
    duty.reconcile_all()
    with run.writer("batch-topic") as writer:
        writer.send(BatchInfo(simulation_run_id=run.id, storage_key=key, tick_start=7, tick_end=7))
    duty.reconcile_all()
    assert announced(run).messages == 1


def test_what_it_announces_can_be_read_as_any_message(duty: ReconciliationService, run: Run, put: Callable[[int], str]):
    put(7)
    duty.reconcile_all()
    duty.reconcile_all()
    with run.reader("batch-topic", group="g") as reader:
        message = reader.poll(10)
        assert message is not None
        assert (message.payload.tick_start, message.payload.tick_end) == (7, 7)
        assert message.payload.written_at_ms > 0


@pytest.mark.warns("Could not reconcile")
def test_a_file_that_was_listed_while_the_database_was_away_is_announced_later(
    duty: ReconciliationService, run: Run, put: Callable[[int], str], monkeypatch: pytest.MonkeyPatch
):
    key = put(7)
    monkeypatch.setattr("ticklake.storage.watch._SETTLE_SECONDS", -1.0)  # one listing of a folder is enough
    with monkeypatch.context() as broken:
        broken.setattr("ticklake.services.reconciliation.announced", lose_the_connection)
        duty.reconcile_all()
    duty.reconcile_all()
    duty.reconcile_all()
    assert told(run) == [key]


def lose_the_connection(*_: object) -> None:
    raise DatabaseUnavailable(database="the database", reason="the connection was lost")


@pytest.mark.parametrize("keep", [{"max_count": 1}, {"max_age": 0.0}, {"max_count": 0, "force": True}])
def test_a_file_whose_message_retention_removed_is_not_announced_again(
    duty: ReconciliationService, run: Run, put: Callable[[int], str], keep: dict[str, float], pass_time: Any
):
    keys = [put(number) for number in range(3)]
    with run.writer("batch-topic") as writer:
        for tick, key in enumerate(keys):
            writer.send(BatchInfo(simulation_run_id=run.id, storage_key=key, tick_start=tick, tick_end=tick))
    pass_time(1)
    removed = run.remove_outdated("batch-topic", **keep)
    assert removed == 3 - keep.get("max_count", 0)
    never = put(7)
    for _ in range(3):
        duty.reconcile_all()
    assert told(run) == [*keys[removed:], never], "only the file that never had a message is announced"
    with run.reader("batch-topic", group="joined later") as reader:
        assert len(reader.poll_many(10, 1)) == 3 - removed + 1
    assert run.removed_files("batch-topic") == set(keys[:removed])
    assert run.removed_files("another-topic") == set()


@pytest.fixture
def emptied(run: Run, put: Callable[[int], str], tmp_path: Path) -> Callable[[str], list[str]]:
    """A topic whose messages told of three files, and were removed by retention; it has no groups."""

    def empty(topic: str) -> list[str]:
        metadata = Ecosystem(SimulationSettings((4, 4))).metadata(run.id, 0)
        Storage(tmp_path / "storage").write_metadata(metadata)
        keys = [put(number) for number in range(3)]
        with run.writer(topic) as writer, run.writer("metadata-topic") as other:
            other.send(MetadataInfo(simulation_run_id=run.id, storage_key=f"{run.id}/metadata.pb"))
            for tick, key in enumerate(keys):
                writer.send(BatchInfo(simulation_run_id=run.id, storage_key=key, tick_start=tick, tick_end=tick))
        assert run.remove_outdated(topic, max_count=0) == 3
        assert run.remove_outdated("metadata-topic", max_count=0) == 1
        return keys

    return empty


def test_files_of_a_topic_of_any_name_that_retention_has_emptied_are_not_announced_again(
    database: Database, run: Run, put: Callable[[int], str], emptied: Callable[[str], list[str]], tmp_path: Path
):
    emptied("my-files")
    never = put(7)
    look = Completeness(run.id, Storage(tmp_path / "storage"), None, database)
    repair = look.plan()
    assert (repair.unannounced, repair.topic) == ([never], "my-files")
    look.apply(repair)
    assert list(announced(run, "my-files").keys) == [never]
    assert run.topic_names() == ["my-files"]
    verdict = Completeness(run.id, Storage(tmp_path / "storage"), None, database).verify().messages
    assert verdict is not None
    assert (verdict.unannounced, verdict.removed) == ([], 3)


def test_what_is_unclear_before_retention_empties_a_topic_is_unclear_after_it(
    database: Database, run: Run, put: Callable[[int], str], emptied: Callable[[str], list[str]], tmp_path: Path
):
    emptied("files-a")
    with run.writer("batch-topic") as writer:
        writer.send(BatchInfo(simulation_run_id=run.id, storage_key=put(7), tick_start=7, tick_end=7))
    look = Completeness(run.id, Storage(tmp_path / "storage"), None, database)
    with pytest.raises(TopicAmbiguous, match="batch-topic, files-a"):
        look.plan()
    verdict = look.verify().messages
    assert verdict is not None
    assert (verdict.unannounced, verdict.removed) == ([], 3)


def test_a_look_at_what_retention_would_remove_records_nothing(run: Run, put: Callable[[int], str]):
    with run.writer("batch-topic") as writer:
        writer.send(BatchInfo(simulation_run_id=run.id, storage_key=put(1), tick_start=1, tick_end=1))
    assert run.remove_outdated("batch-topic", max_count=0, dry_run=True) == 1
    assert run.removed_files("batch-topic") == set()


@pytest.mark.warns("was announced but is not in")
def test_what_was_announced_and_is_gone_is_reported_once(
    duty: ReconciliationService, run: Run, put: Callable[[int], str], tmp_path: Path
):
    put(1)
    with run.writer("batch-topic") as writer:
        writer.send(BatchInfo(simulation_run_id=run.id, storage_key=f"{run.id}/batch_5_5.pb", tick_start=5, tick_end=5))
    duty.reconcile_all()
    duty.reconcile_all()
    put(2)
    duty.reconcile_all()
    assert duty.monitor.snapshot()["batches_vanished"] == 1


@pytest.mark.parametrize("seen_first", ["stored", "announced"])
def test_what_is_written_and_announced_during_a_look_has_not_vanished(
    duty: ReconciliationService, run: Run, put: Callable[[int], str], seen_first: str, monkeypatch: pytest.MonkeyPatch
):
    put(1)
    look = getattr(reconciliation, seen_first)

    def then_written(*places: object) -> object:
        seen, key = look(*places), put(5)
        with run.writer("batch-topic") as writer:
            writer.send(BatchInfo(simulation_run_id=run.id, storage_key=key, tick_start=5, tick_end=5))
        monkeypatch.undo()
        return seen

    monkeypatch.setattr(reconciliation, seen_first, then_written)
    for _ in range(3):
        duty.reconcile_all()
    assert (duty.monitor.snapshot().get("batches_vanished"), announced(run).messages) == (None, 2)


def test_a_verdict_tells_of_no_file_as_gone_that_came_while_it_was_made(
    database: Database, run: Run, put: Callable[[int], str], tmp_path: Path
):
    storage = Storage(tmp_path / "storage")
    storage.write_metadata(Ecosystem(SimulationSettings((4, 4))).metadata(run.id, 0))
    verdict = Completeness(run.id, storage, None, database)
    keys = [put(5), f"{run.id}/batch_6_6.pb"]
    with run.writer("batch-topic") as writer:
        for tick, key in enumerate(keys, start=5):
            writer.send(BatchInfo(simulation_run_id=run.id, storage_key=key, tick_start=tick, tick_end=tick))
    found = verdict.verify().messages
    assert found is not None and found.vanished == keys[1:]


def test_it_runs_by_itself_until_it_is_stopped(
    duty: ReconciliationService, run: Run, put: Callable[[int], str], eventually: Callable[..., None]
):
    key = put(7)
    with duty:
        eventually(lambda: told(run) == [key])
    assert duty.error is None


@pytest.mark.warns("Could not reconcile")
def test_a_run_that_cannot_be_read_does_not_end_the_duty(database: Database, tmp_path: Path):
    duty = ReconciliationService(database, Storage(tmp_path / "nowhere"), run_id="20251014-143025-gone")
    duty.reconcile_all()
    assert len(duty.monitor.errors) == 1
