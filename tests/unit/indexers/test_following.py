"""What an indexer of many runs does when runs fail, end elsewhere or vanish. No Spark: its children only wait."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from ticklake import BatchInfo, Database
from ticklake.errors import MetadataTimeout, RunNotInDatabase, RunsNotIndexed
from ticklake.indexers.base import Indexer, IndexerOptions, IndexerResources
from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.indexers.runs.following import MAX_FAILURES, Following
from ticklake.indexers.runs.pending import Messages
from ticklake.indexers.runs.turns import PLACES
from ticklake.indexers.runs.unfinished import Unfinished
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


@pytest.mark.warns("waiting failed: ValueError: broken")
def test_an_old_run_that_fails_does_not_make_the_node_unready(
    indexer: Waiting, announce: Any, eventually: Eventually
) -> None:
    announce(run_of(9))
    eventually(lambda: indexer.runs == [run_of(9)])
    announce(run_of(1), broken=True)
    eventually(lambda: indexer.monitor.snapshot()["runs_failing"] == 1)
    eventually(lambda: indexer.monitor.healthy)
    announce(run_of(10), broken=True)  # the newest run is not old
    eventually(lambda: not indexer.monitor.healthy)


@pytest.mark.warns("waiting failed: ValueError: broken")
def test_a_node_on_which_many_runs_fail_and_none_succeeds_is_not_ready(
    indexer: Waiting, maker: Any, announce: Any, eventually: Eventually
) -> None:
    maker.run_id = run_of(99)
    maker.metadata()  # the newest run has no work
    for number in range(PLACES):
        announce(run_of(number), broken=True)
    eventually(lambda: indexer.monitor.snapshot()["runs_failing"] == PLACES)
    eventually(lambda: not indexer.monitor.healthy)


class Steps:
    """An indexer that ends when it has caught up, with a clock of its own."""

    def __init__(self, maker: Any, database: Database, kind: type[Waiting]) -> None:
        resources = IndexerResources(maker.storage, database=database, topic=TOPIC, group=GROUP)
        self.parent = kind("waiting", resources, IndexerOptions(runs="all"))
        unfinished = Unfinished(maker.storage, Messages(database, self.parent.has_work), "all", self.parent.monitor)
        self.following = Following(unfinished, self.parent._of_run, self.parent.monitor, until_caught_up=True)
        self._clock = count(step=100)

    def is_busy(self) -> bool:
        return self.following.step(next(self._clock))


@pytest.mark.parametrize("fails", ["with an error", "in its flushes"])
@pytest.mark.warns("waiting failed: ValueError: broken")
def test_an_indexer_that_ends_when_it_has_caught_up_gives_up_runs_that_always_fail(
    fails: str, maker: Any, database: Database, announce: Any, eventually: Eventually
) -> None:
    attempts: list[str] = []

    class Failing(Waiting):
        def index_run(self, run_id: str) -> None:
            attempts.append(run_id)
            if fails == "with an error":
                raise ValueError("broken")
            self.monitor.healthy = False
            self.monitor.errors.record("FLUSH_FAILED", "the disk is full")
            super().index_run(run_id)

    announce(run_of(1))
    steps = Steps(maker, database, Failing)
    eventually(lambda: not steps.is_busy())
    with pytest.raises(RunsNotIndexed, match=f"1 runs .* after {MAX_FAILURES} attempts") as caught:
        steps.following.check()
    assert (caught.value.run_id, len(attempts)) == (run_of(1), MAX_FAILURES)
    reason = {"with an error": "ValueError: broken", "in its flushes": "the disk is full"}[fails]
    assert reason in str(caught.value)


@pytest.mark.warns("No metadata of run")
def test_a_run_without_metadata_fails_after_its_time_however_often_it_leaves_its_place(
    maker: Any, database: Database, eventually: Eventually
) -> None:
    resources = IndexerResources(maker.storage, maker.lake, database)
    options = IndexerOptions(runs="all", poll_interval_ms=10, max_poll_duration_ms=200)
    parent = EnvironmentIndexer("environment-indexer", resources, options)
    with database.run(run_of(1)).writer(TOPIC) as writer:
        writer.send(BatchInfo())
    children = []

    def turn() -> bool:
        child = parent._of_run(run_of(1))
        children.append(child)
        child.start()
        eventually(lambda: child.idle_seconds is not None or child.error is not None)
        child.stop()
        child.release()
        return isinstance(child.error, MetadataTimeout)

    eventually(turn)
    assert len(children) > 1


def test_runs_that_were_there_before_are_named_a_few_times_at_most(
    maker: Any, database: Database, announce: Any, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    class Short(Waiting):
        def index_run(self, run_id: str) -> None:
            with self.resources.database.run(run_id).reader(TOPIC, group=GROUP) as reader:  # type: ignore[union-attr]
                reader.ack(reader.poll(5))

    for number in range(15):
        announce(run_of(number))
    resources = IndexerResources(maker.storage, database=database, topic=TOPIC, group=GROUP)
    with caplog.at_level(logging.INFO, "ticklake.notices"):
        Short("waiting", resources, IndexerOptions(runs="all", poll_interval_ms=10, until_caught_up=True)).run()
    found = [record.message for record in caplog.records if record.name == "ticklake.notices"]
    assert len(found) == 11
    assert found[0] == f"Continuing with run {run_of(14)}, which began before this indexer"
    assert found[-1].startswith("Continuing with more runs")


def test_the_new_run_of_the_own_node_is_not_continued(
    maker: Any, database: Database, announce: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Short(Waiting):
        def index_run(self, run_id: str) -> None:
            with self.resources.database.run(run_id).reader(TOPIC, group=GROUP) as reader:  # type: ignore[union-attr]
                reader.ack(reader.poll(5))

    announce(run_of(1))
    announce(run_of(2))
    resources = IndexerResources(maker.storage, database=database, topic=TOPIC, group=GROUP, own_run=run_of(2))
    with caplog.at_level(logging.INFO, "ticklake.notices"):
        Short("waiting", resources, IndexerOptions(runs="all", poll_interval_ms=10, until_caught_up=True)).run()
    found = [record.message for record in caplog.records if record.name == "ticklake.notices"]
    assert found == [f"Continuing with run {run_of(1)}, which began before this indexer"]


def test_a_run_whose_turn_ends_while_its_flushes_fail_counts_as_failing(
    maker: Any, database: Database, announce: Any, eventually: Eventually
) -> None:
    class Unhealthy(Waiting):
        def index_run(self, run_id: str) -> None:
            self.monitor.healthy = run_id != run_of(2)

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
