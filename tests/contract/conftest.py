"""Every database that TickLake speaks, under one fixture: `database`. No mocks: PostgreSQL is a real server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from ticklake import BatchInfo, Database
from ticklake.database.sqlite.backend import SqliteBackend
from ticklake.database.sqlite.run_file import wall_clock_ms
from ticklake.topics import Run

# They test what is built upon topics, groups and coordination, which have tests of their own on every database.
ALIKE = {
    *("test_acknowledged_by_index", "test_consumer_catching_up", "test_coordinated_batches"),
    *("test_copied_lakes", "test_doctor", "test_gone_tables", "test_group_tables", "test_hostile_uses"),
    *("test_large_messages", "test_lives_of_runs", "test_poison_messages", "test_reconciliation", "test_top"),
    *("test_topics_cli", "test_unfinished_runs"),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What both databases do alike is tested on SQLite, and on PostgreSQL too with the slow tests."""
    found = [(item, database_of(item), item.nodeid.partition("[")[0]) for item in items if item.path.stem in ALIKE]
    on_sqlite = {name for _, database, name in found if database == "sqlite"}
    for item, database, name in found:
        if database == "postgres" and name in on_sqlite:
            item.add_marker(pytest.mark.slow)


def database_of(item: pytest.Item) -> str | None:
    given = getattr(item, "callspec", None)
    return given.params.get("database_url") if given is not None else None


class Clock:
    """The clock of the SQLite backend: real time plus what a test has added."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def __call__(self) -> int:
        return wall_clock_ms() + self.ahead_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'db'}"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def database(database_url: str, tmp_path: Path, clock: Clock) -> Iterator[Database]:
    backend = SqliteBackend(tmp_path / "db", clock) if database_url.startswith("sqlite") else None
    with Database(database_url, backend=backend) as opened:
        yield opened


@pytest.fixture
def run(database: Database) -> Run:
    return database.run(f"20251014-143025-{uuid4().hex[:8]}")


@pytest.fixture
def pass_time(run: Run, clock: Clock) -> Callable[[float], None]:
    """Moves the clock of the run's database on."""

    def pass_seconds(seconds: float) -> None:
        clock.ahead_ms += round(seconds * 1000)
        with run.transaction() as transaction:
            if transaction.dialect == "postgres":
                later = f"clock_timestamp() + interval '{clock.ahead_ms} milliseconds'"
                transaction.execute_script(
                    "CREATE OR REPLACE FUNCTION now_at() RETURNS timestamptz LANGUAGE plpgsql STABLE AS "
                    f"$$ BEGIN RETURN {later}; END $$"
                )

    return pass_seconds


@pytest.fixture
def batch() -> Callable[[int], BatchInfo]:
    """A message that says which one it is."""
    return lambda number: BatchInfo(simulation_run_id="r", storage_key=f"k{number}", tick_start=number, tick_end=number)
