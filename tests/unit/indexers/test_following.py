"""What an indexer of many runs does when runs fail, end elsewhere or vanish. No Spark: its children only wait."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ticklake import BatchInfo, Database
from ticklake.errors import RunNotInDatabase
from ticklake.indexers.base import Indexer, IndexerOptions, IndexerResources
from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.storage import Storage

Eventually = Callable[..., None]
TOPIC, GROUP = "batch-topic", "waiting"


def run_of(number: int) -> str:
    return f"20261101-120000-run{number:05}"


class Waiting(Indexer):
    """Works on a run until it is stopped. Fails if the run's folder has a file named `broken`."""

    def index_run(self, run_id: str) -> None:
        if (Path(self.resources.storage.url) / run_id / "broken").exists():
            raise ValueError("broken")
        while self.proceed():
            self.wait(0.01)


@pytest.fixture
def database(maker: Any) -> Iterator[Database]:
    with Database(maker.database_url) as database:
        yield database


@pytest.fixture
def announce(maker: Any, database: Database) -> Callable[..., Path]:
    def announce(run_id: str, *, broken: bool = False) -> Path:
        maker.run_id = run_id
        maker.metadata()
        folder = Path(maker.storage.url) / run_id
        if broken:
            (folder / "broken").touch()
        with database.run(run_id).writer(TOPIC) as writer:
            writer.send(BatchInfo())
        return folder

    return announce


@pytest.fixture
def indexer(maker: Any, database: Database) -> Iterator[Waiting]:
    resources = IndexerResources(maker.storage, database=database, topic=TOPIC, group=GROUP)
    with Waiting("waiting", resources, IndexerOptions(runs="all", poll_interval_ms=10)) as indexer:
        yield indexer


@pytest.mark.warns("waiting failed: ValueError: broken")
@pytest.mark.parametrize("deleted", [False, True], ids=["finished by others", "deleted"])
def test_a_failing_run_that_needs_no_work_any_more_is_no_failure(
    deleted: bool, indexer: Waiting, announce: Any, database: Database, eventually: Eventually
) -> None:
    folder = announce(run_of(1), broken=True)
    eventually(lambda: indexer.monitor.snapshot()["runs_failing"] == 1)
    eventually(lambda: not indexer.monitor.healthy)
    if deleted:
        shutil.rmtree(folder)
    else:
        with database.run(run_of(1)).reader(TOPIC, group=GROUP) as reader:
            reader.ack(reader.poll(5))
    eventually(lambda: indexer.monitor.snapshot()["runs_failing"] == 0)
    eventually(lambda: indexer.monitor.healthy)


def test_a_run_whose_turn_ends_while_its_flushes_fail_counts_as_failing(
    maker: Any, database: Database, announce: Any, eventually: Eventually
) -> None:
    class Unhealthy(Waiting):
        def index_run(self, run_id: str) -> None:
            self.monitor.healthy = run_id != run_of(1)

    announce(run_of(1))
    announce(run_of(2))
    resources = IndexerResources(maker.storage, database=database, topic=TOPIC, group=GROUP)
    with Unhealthy("waiting", resources, IndexerOptions(runs="all", poll_interval_ms=10)) as indexer:
        eventually(lambda: indexer.monitor.snapshot()["runs_failing"] == 1)
        eventually(lambda: not indexer.monitor.healthy)


@pytest.mark.warns("is not in the storage any more")
def test_a_run_that_is_deleted_while_it_is_followed_ends_and_the_others_go_on(
    indexer: Waiting, announce: Any, eventually: Eventually
) -> None:
    announce(run_of(1))
    folder = announce(run_of(2))
    eventually(lambda: indexer.runs == [run_of(1), run_of(2)])
    shutil.rmtree(folder)
    eventually(lambda: indexer.runs == [run_of(1)])
    assert [error.code for error in indexer.monitor.errors] == ["RUN_GONE"]


class Unlisted(Storage):
    """A storage whose disk can be told to fail."""

    fails = False

    def runs(self) -> list[str]:
        if self.fails:
            raise OSError(5, "Input/output error")
        return super().runs()


@pytest.mark.warns("Cannot look for runs")
def test_an_indexer_that_cannot_list_its_storage_says_so(
    maker: Any, database: Database, eventually: Eventually
) -> None:
    storage = Unlisted(maker.storage.url)
    resources = IndexerResources(storage, database=database, topic=TOPIC, group=GROUP)
    with Waiting("waiting", resources, IndexerOptions(runs="all", poll_interval_ms=10)) as indexer:
        storage.fails = True
        eventually(lambda: not indexer.monitor.healthy)
        eventually(lambda: len(indexer.monitor.errors) > 1)
        storage.fails = False
        eventually(lambda: indexer.monitor.healthy)


def test_a_run_that_was_paused_while_the_indexer_was_resumed_goes_on(
    indexer: Waiting, announce: Any, eventually: Eventually
) -> None:
    """The thread of the indexer may pause its runs a moment after an operator has resumed them."""
    announce(run_of(1))
    eventually(lambda: indexer.runs == [run_of(1)])
    assert indexer._following is not None
    indexer._following.pause()
    eventually(lambda: indexer._following.children[run_of(1)].state == "running")  # type: ignore[union-attr]


def test_a_place_that_becomes_free_is_given_away_at_once(
    maker: Any, database: Database, announce: Any, eventually: Eventually
) -> None:
    """An indexer that looks for runs only once in an hour."""
    for number in range(8):
        announce(run_of(number))
    seen: set[str] = set()

    class Short(Waiting):
        def index_run(self, run_id: str) -> None:
            seen.add(run_id)

    resources = IndexerResources(maker.storage, database=database, topic=TOPIC, group=GROUP)
    with Short("waiting", resources, IndexerOptions(runs="all", poll_interval_ms=3_600_000)):
        eventually(lambda: len(seen) == 8)


@pytest.mark.warns("waiting failed: RunNotInDatabase")
def test_a_run_that_has_left_the_database_before_its_turn_is_not_made_again(
    indexer: Waiting, maker: Any, database: Database
) -> None:
    child = indexer._of_run(run_of(1))
    child.start()
    assert child.join(60)
    assert isinstance(child.error, RunNotInDatabase)
    child.release()
    assert database.runs() == []


def test_a_run_that_waits_for_its_metadata_leaves_its_place_to_others(
    maker: Any, database: Database, eventually: Eventually
) -> None:
    resources = IndexerResources(maker.storage, maker.lake, database)
    options = IndexerOptions(run_id=run_of(1), poll_interval_ms=3_600_000, max_poll_duration_ms=7_200_000)
    with EnvironmentIndexer("environment-indexer", resources, options) as indexer:
        eventually(lambda: indexer.idle_seconds is not None)
