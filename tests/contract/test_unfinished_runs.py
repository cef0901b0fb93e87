"""Runs that have work are found, and finished ones are not asked again, on every database."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import apsw
import psycopg
import pytest

from ticklake import BatchInfo, Database, SimulationMetadata
from ticklake.database.names import schema_name
from ticklake.errors import DatabaseUnavailable
from ticklake.indexers.runs import unfinished as module
from ticklake.indexers.runs.pending import Messages, unacknowledged
from ticklake.indexers.runs.unfinished import RETRY_SECONDS, SLICE, WARM_SECONDS, Unfinished
from ticklake.monitoring import Monitor
from ticklake.storage import Storage
from ticklake.topics import Run

TOPIC, GROUP = "batch-topic", "indexer"
FIRST = Path(__file__).parent / "first_version"
FIRST_RUN = "20251014-143025-550e8400"
Eventually = Callable[..., None]


class Asked:
    """Counts which runs are asked for work."""

    def __init__(self) -> None:
        self.runs: list[str] = []

    def __call__(self, run: Run) -> bool:
        self.runs.append(run.id)
        return unacknowledged(run, TOPIC, GROUP)


@pytest.fixture
def database(database_url: str) -> Database:
    return Database(database_url)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(tmp_path / "storage")


@pytest.fixture
def older(database_url: str) -> Callable[[str], None]:
    """Makes a run as the first version of TickLake left it, with one message."""

    def make(run_id: str) -> None:
        script = (FIRST / ("sqlite.sql" if database_url.startswith("sqlite") else "postgres.sql")).read_text("utf-8")
        script = script.replace(FIRST_RUN, run_id).replace(schema_name(FIRST_RUN), schema_name(run_id))
        if not database_url.startswith("sqlite"):
            with psycopg.connect(database_url, autocommit=True) as connection:
                connection.execute(script)
            return
        folder = Path(database_url.removeprefix("sqlite:///"))
        folder.mkdir(exist_ok=True)
        file = apsw.Connection(str(folder / f"{schema_name(run_id)}.sqlite"))
        file.execute(script)
        file.close()

    return make


THIS = {"prefix": ""}


@pytest.fixture(autouse=True)
def own_names() -> None:
    """Tests share a server."""
    THIS["prefix"] = uuid4().hex[:8]


def name(number: int) -> str:
    return f"20261101-120000-{THIS['prefix']}-{number:05}"


def stored(storage: Storage, number: int) -> str:
    storage.write_metadata(SimulationMetadata(simulation_run_id=name(number), sampling_interval=1))
    return name(number)


def send(database: Database, run_id: str) -> None:
    with database.run(run_id).writer(TOPIC) as writer:
        writer.send(BatchInfo())


def finish(database: Database, run_id: str) -> None:
    with database.run(run_id).reader(TOPIC, group=GROUP) as reader:
        for message in reader.poll_many(10, 0):
            reader.ack(message)


def test_a_stamp_changes_after_every_write_and_stays_without_one(database: Database, eventually: Eventually) -> None:
    first, other = name(1), name(2)
    with database:
        assert database.stamps([first, other]) == {}
        send(database, first)
        send(database, other)
        assert set(database.stamps([first, other, name(3)])) == {first, other}
        eventually(lambda: not {None, 0} & set(database.stamps([first, other]).values()))
        before = database.stamps([first, other])
        send(database, first)
        eventually(lambda: database.stamps([first])[first] not in (None, before[first]))
        if database.url.startswith("sqlite"):  # a server may still count what was written before
            assert database.stamps([other])[other] == before[other]


def test_a_file_from_the_future_counts_as_written_long_ago(tmp_path: Path) -> None:
    """The clock was wrong when it was written, and was corrected. Otherwise it would count as written just now."""
    with Database(f"sqlite:///{tmp_path / 'database'}") as database:
        send(database, name(1))
        assert database.stamps([name(1)]) == {name(1): None}
        for path in (tmp_path / "database").iterdir():
            os.utime(path, (4e9, 4e9))
        before = database.stamps([name(1)])[name(1)]
        assert before is not None
        send(database, name(1))
        assert database.stamps([name(1)])[name(1)] != before


def test_a_closed_branch_leaves_the_database_open(database: Database) -> None:
    with database:
        send(database, name(1))
        branch = database.branch()
        assert unacknowledged(branch.run(name(1), create=False), TOPIC, GROUP)
        branch.close()
        finish(database, name(1))
        assert database.run(name(1)).groups.list(TOPIC)[0].lag == 0


def test_runs_with_work_are_found_newest_first(database: Database, storage: Storage) -> None:
    with database:
        for number in range(4):
            send(database, stored(storage, number))
        finish(database, name(2))
        send(database, name(9))  # not in this storage
        stored(storage, 5)  # not in the database
        unfinished = Unfinished(storage, Messages(database, Asked()), "all", Monitor("test"))
        assert unfinished.look(0.0, ()) == [name(3), name(1), name(0)]
        unfinished.ask_again(name(1), 0.0)
        assert unfinished.look(0.0, [name(3), name(0)]) == [name(1)]


def test_a_finished_run_is_asked_again_only_after_a_write(
    database: Database, storage: Storage, eventually: Eventually
) -> None:
    asked, now = Asked(), 0.0
    with database:
        send(database, stored(storage, 1))
        finish(database, name(1))
        unfinished = Unfinished(storage, Messages(database, asked), "all", Monitor("test"))

        def quiet() -> bool:
            nonlocal now
            now += WARM_SECONDS + 1
            asked.runs.clear()
            assert unfinished.look(now, ()) == []
            return not asked.runs

        eventually(quiet)
        send(database, name(1))

        def found() -> bool:
            nonlocal now
            now += 1
            return unfinished.look(now, ()) == [name(1)]

        eventually(found)


def test_the_cost_of_a_look_does_not_grow_with_finished_runs(database: Database, storage: Storage) -> None:
    with database:
        for number in range(SLICE + 60):
            stored(storage, number)
        send(database, name(0))
        asked = Asked()
        unfinished = Unfinished(storage, Messages(database, asked), "all", Monitor("test"))
        counted: list[int] = []

        def stamps(run_ids: list[str]) -> dict[str, object]:
            counted.append(len(run_ids))
            return Database.stamps(database, run_ids)

        database.stamps = stamps  # type: ignore[method-assign, assignment]
        found = {run_id for _ in range(3) for run_id in unfinished.look(0.0, ())}
        assert found == {name(0)}
        assert max(counted) <= 2 * SLICE + 1
        assert set(asked.runs) == {name(0)}


def test_a_look_at_many_new_runs_is_short_and_the_next_ones_check_the_others(
    database: Database, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runs that were found first begin meanwhile."""
    monkeypatch.setattr(module, "NEW_SECONDS", 0.0)
    with database:
        for number in range(3):
            send(database, stored(storage, number))
        unfinished = Unfinished(storage, Messages(database, Asked()), "all", Monitor("test"))
        begun: list[str] = []
        for number in (2, 1, 0):
            assert unfinished.look(0.0, begun) == [name(number)]
            begun.append(name(number))


def test_a_storage_is_listed_again_only_after_a_change(database: Database, storage: Storage) -> None:
    listed: list[float] = []
    with database:
        stored(storage, 1)
        unfinished = Unfinished(storage, Messages(database, Asked()), "all", Monitor("test"))
        list_runs = storage.runs
        storage.runs = lambda: listed.append(now) or list_runs()  # type: ignore[method-assign, func-returns-value]
        for now in (0.0, 1.0, 2.0, 3.0, 50.0, 61.0, 62.0, 63.0):
            unfinished.look(now, ())
        assert listed == [0.0, 1.0, 2.0, 62.0]
        send(database, stored(storage, 2))
        now = 64.0
        assert unfinished.look(now, ()) == [name(2)]


@pytest.mark.warns("Cannot check run")
def test_a_damaged_run_hides_no_other(tmp_path: Path, storage: Storage, eventually: Eventually) -> None:
    with Database(f"sqlite:///{tmp_path / 'database'}") as database:
        for number in (1, 2):
            send(database, stored(storage, number))
    broken = next(path for path in (tmp_path / "database").glob("*.sqlite") if "00001" in path.name)
    broken.write_bytes(b"no database" * 1000)
    with Database(f"sqlite:///{tmp_path / 'database'}") as database:
        monitor = Monitor("test")
        unfinished = Unfinished(storage, Messages(database, Asked()), "all", monitor)
        assert unfinished.look(0.0, ()) == [name(2)]
        eventually(lambda: unfinished.look(0.0, ()) is not None and len(monitor.errors) > 0)
        unfinished.look(0.0, ())
        assert [error.code for error in monitor.errors] == ["RUN_UNREADABLE"]


def test_a_server_that_fails_in_the_middle_of_a_look_hides_no_run(database: Database, storage: Storage) -> None:
    answers = False

    def has_work(run: Run) -> bool:
        if run.id == name(1) and not answers:
            raise DatabaseUnavailable(database="server", reason="it restarts")
        return unacknowledged(run, TOPIC, GROUP)

    with database:
        for number in range(3):
            send(database, stored(storage, number))
        unfinished = Unfinished(storage, Messages(database, has_work), "all", Monitor("test"))
        with pytest.raises(DatabaseUnavailable):
            unfinished.look(0.0, ())
        answers = True
        assert unfinished.look(1.0, ()) == [name(2), name(1), name(0)]


@pytest.mark.warns("Cannot check run")
def test_a_file_that_cannot_be_opened_hides_no_other_and_is_tried_again(tmp_path: Path, storage: Storage) -> None:
    with Database(f"sqlite:///{tmp_path / 'database'}") as database:
        for number in range(3):
            send(database, stored(storage, number))
    broken = next(path for path in (tmp_path / "database").glob("*.sqlite") if "00001" in path.name)
    broken.rename(tmp_path / "away")
    broken.mkdir()
    with Database(f"sqlite:///{tmp_path / 'database'}") as database:
        unfinished = Unfinished(storage, Messages(database, Asked()), "all", Monitor("test"))
        assert unfinished.look(0.0, ()) == [name(2), name(0)]
        assert unfinished.look(1.0, [name(2), name(0)]) == []
        assert not unfinished.complete
        broken.rmdir()
        (tmp_path / "away").rename(broken)
        assert unfinished.look(RETRY_SECONDS, [name(2), name(0)]) == [name(1)]


@pytest.mark.warns("Cannot check run .*UnicodeDecodeError")
def test_a_run_that_raises_anything_hides_no_other(database: Database, storage: Storage) -> None:
    """Random damage of a file has shown this error, from a text in a table."""

    def has_work(run: Run) -> bool:
        if run.id == name(1):
            b"\xa8".decode()
        return unacknowledged(run, TOPIC, GROUP)

    with database:
        for number in range(3):
            send(database, stored(storage, number))
        unfinished = Unfinished(storage, Messages(database, has_work), "all", Monitor("test"))
        found = {run_id for now in range(2) for run_id in unfinished.look(float(now), ())}
        assert found == {name(2), name(0)}


def test_finished_runs_are_asked_once_after_a_start(
    database: Database, storage: Storage, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    monkeypatch.setattr(module, "SLICE", 3)
    monkeypatch.setattr(module, "RECENT", 1)
    monkeypatch.setattr(module, "NEW_SECONDS", 3600.0)
    with database:
        for number in range(9):
            send(database, stored(storage, number))
            finish(database, name(number))
        stamps: dict[str, object] = {}
        runs = storage.runs()

        def settled() -> bool:
            nonlocal stamps
            before, stamps = stamps, database.stamps(runs)
            return before == stamps and None not in stamps.values()

        eventually(settled)
        if database.url.startswith("postgres"):  # a server may still count what was written before
            database.stamps = lambda run_ids: {run_id: stamps[run_id] for run_id in run_ids}  # type: ignore[method-assign]
        asked = Asked()
        unfinished = Unfinished(storage, Messages(database, asked), "all", Monitor("test"))
        for now in range(12):
            assert unfinished.look(float(now), ()) == []
        assert sorted(asked.runs) == runs


def test_all_runs_are_checked_before_none_has_work(
    database: Database, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SLICE", 3)
    monkeypatch.setattr(module, "RECENT", 1)
    monkeypatch.setattr(module, "NEW_SECONDS", 3600.0)
    with database:
        for number in range(8):
            stored(storage, number)
        send(database, name(0))
        unfinished = Unfinished(storage, Messages(database, Asked()), "all", Monitor("test"))
        for _ in range(2):
            assert unfinished.look(0.0, ()) == []
            assert not unfinished.complete
        assert unfinished.look(0.0, ()) == [name(0)]
        assert not unfinished.complete
        finish(database, name(0))
        for now in range(1, 4):
            unfinished.ask_again(name(0), float(now))
            unfinished.look(float(now), ())
        assert unfinished.complete
        assert unfinished.is_finished(name(0))


def test_a_run_whose_tables_are_of_an_older_version_may_have_work(
    database: Database, storage: Storage, older: Callable[[str], None]
) -> None:
    """Who opens it for work upgrades it. A look does not."""
    with database:
        older(stored(storage, 1))
        unfinished = Unfinished(storage, Messages(database, Asked()), "all", Monitor("test"))
        assert unfinished.look(0.0, ()) == [name(1)]
        finish(database, name(1))
        unfinished.ask_again(name(1), 1.0)
        assert unfinished.look(1.0, ()) == []


def test_a_run_id_without_a_time_is_not_the_newest(database: Database, storage: Storage) -> None:
    with database:
        send(database, stored(storage, 1))
        storage.write_metadata(SimulationMetadata(simulation_run_id=f"test-{THIS['prefix']}", sampling_interval=1))
        send(database, f"test-{THIS['prefix']}")
        for wanted, found in (("newest", [name(1)]), ("all", [name(1), f"test-{THIS['prefix']}"])):
            unfinished = Unfinished(storage, Messages(database, Asked()), wanted, Monitor("test"))
            assert unfinished.look(0.0, ()) == found


def test_a_run_whose_turn_has_ended_is_asked_a_few_times_and_not_before_its_pause_is_over(
    database: Database, storage: Storage, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    """Hundreds of runs may have ended in the last minute. Asking all of them in each look would delay the others."""
    monkeypatch.setattr(module, "RECENT", 0)
    asked = Asked()
    with database:
        send(database, stored(storage, 1))
        finish(database, name(1))
        eventually(lambda: database.stamps([name(1)])[name(1)] is not None)
        stamps = database.stamps([name(1)])
        database.stamps = lambda _: stamps  # type: ignore[method-assign, assignment]
        unfinished = Unfinished(storage, Messages(database, asked), "all", Monitor("test"))
        unfinished.look(0.0, ())
        asked.runs.clear()
        unfinished.ask_again(name(1), 10.0)
        unfinished.look(9.0, ())
        assert asked.runs == []
        assert not unfinished.is_finished(name(1))
        for now in range(10, 70):
            unfinished.look(float(now), ())
        assert 5 <= len(asked.runs) <= 8
        assert unfinished.is_finished(name(1))
