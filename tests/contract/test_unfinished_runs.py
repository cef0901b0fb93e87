"""Runs that have work are found, and finished ones are not asked again, on every database."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from ticklake import BatchInfo, Database, SimulationMetadata
from ticklake.indexers.unfinished import SLICE, WARM_SECONDS, Unfinished, unacknowledged
from ticklake.monitoring import Monitor
from ticklake.storage import Storage
from ticklake.topics import Run

TOPIC, GROUP = "batch-topic", "indexer"
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
        unfinished = Unfinished(storage, database, "all", Asked(), Monitor("test"))
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
        unfinished = Unfinished(storage, database, "all", asked, Monitor("test"))

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
        unfinished = Unfinished(storage, database, "all", asked, Monitor("test"))
        counted: list[int] = []

        def stamps(run_ids: list[str]) -> dict[str, object]:
            counted.append(len(run_ids))
            return Database.stamps(database, run_ids)

        database.stamps = stamps  # type: ignore[method-assign, assignment]
        found = {run_id for _ in range(3) for run_id in unfinished.look(0.0, ())}
        assert found == {name(0)}
        assert max(counted) <= 2 * SLICE + 1
        assert set(asked.runs) == {name(0)}


@pytest.mark.warns("Cannot check run")
def test_a_damaged_run_hides_no_other(tmp_path: Path, storage: Storage, eventually: Eventually) -> None:
    with Database(f"sqlite:///{tmp_path / 'database'}") as database:
        for number in (1, 2):
            send(database, stored(storage, number))
    broken = next(path for path in (tmp_path / "database").glob("*.sqlite") if "00001" in path.name)
    broken.write_bytes(b"no database" * 1000)
    with Database(f"sqlite:///{tmp_path / 'database'}") as database:
        monitor = Monitor("test")
        unfinished = Unfinished(storage, database, "all", Asked(), monitor)
        assert unfinished.look(0.0, ()) == [name(2)]
        eventually(lambda: unfinished.look(0.0, ()) is not None and len(monitor.errors) > 0)
        unfinished.look(0.0, ())
        assert [error.code for error in monitor.errors] == ["RUN_UNREADABLE"]
