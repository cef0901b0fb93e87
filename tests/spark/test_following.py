"""An indexer that follows many runs: every run with work is indexed, a few at a time, and none stops the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from ticklake import MetadataInfo
from ticklake.indexers.base import Indexer, IndexerOptions, IndexerResources
from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.indexers.builtin.metadata import MetadataIndexer
from ticklake.indexers.runs.turns import PLACES
from ticklake.topics import Database

Eventually = Callable[..., None]


def run_of(number: int) -> str:
    return f"20261101-1200{number:02}-run{number:05}"


def announce(maker: Any, run_id: str, *ticks: tuple[int, int]) -> None:
    """Writes a run as a producer does: metadata, batch files and their messages."""
    maker.run_id = run_id
    metadata = maker.metadata()
    with Database(maker.database_url) as database:
        run = database.run(run_id)
        with run.writer("metadata-topic") as writer:
            key = f"{metadata.simulation_run_id}/metadata.pb.zst"
            writer.send(MetadataInfo(simulation_run_id=run_id, storage_key=key))
        with run.writer("batch-topic") as writer:
            writer.send_many([maker.batch(*one) for one in ticks])


def lag(database: Database, run_id: str, group: str = "environment-indexer") -> int | None:
    found = [one.lag for one in database.run(run_id, create=False).groups.list("batch-topic") if one.group == group]
    return found[0] if found else None


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@contextmanager
def following(resources: IndexerResources, runs: str = "all", **options: Any) -> Iterator[EnvironmentIndexer]:
    """The two indexers of a node that follow runs."""
    given = IndexerOptions(runs=runs, poll_interval_ms=20, flush_timeout_ms=20, **options)
    environment = EnvironmentIndexer("environment-indexer", resources, given)
    indexers: list[Indexer] = [MetadataIndexer("metadata-indexer", resources, given), environment]
    with ExitStack() as stack:
        for indexer in indexers:
            stack.enter_context(indexer)
        yield environment


def test_old_runs_and_new_ones_are_indexed_while_the_indexer_runs(
    maker: Any, resources: IndexerResources, database: Database, eventually: Eventually
) -> None:
    old = [run_of(number) for number in range(2 * PLACES)]
    for run_id in old:
        announce(maker, run_id, (0, 4), (5, 9))
    with following(resources) as indexer:
        eventually(lambda: all(lag(database, run_id) == 0 for run_id in old))
        announce(maker, run_of(50), (0, 9))
        eventually(lambda: lag(database, run_of(50)) == 0)
        announce(maker, run_of(0), (10, 14))  # more work for the oldest run
        eventually(lambda: lag(database, run_of(0)) == 0)
        assert len(indexer.runs) <= PLACES
    for run_id, ticks in [(one, 10) for one in [*old[1:], run_of(50)]] + [(run_of(0), 15)]:
        maker.run_id = run_id
        assert maker.keys() == sorted(maker.expected_keys(range(ticks)))
    assert indexer.monitor.counter("ticks_processed").value == 10 * (len(old) + 1) + 5


@pytest.mark.warns("environment-indexer failed: DamagedCommit")
def test_a_run_that_cannot_be_indexed_stops_no_other(
    maker: Any, resources: IndexerResources, database: Database, eventually: Eventually
) -> None:
    for number in range(3):
        announce(maker, run_of(number), (0, 9))
    broken = Path(str(maker.lake.location(run_of(1), "environment_data")))
    (broken / "_delta_log").mkdir(parents=True)
    (broken / "_delta_log" / "00000000000000000000.json").write_text("not a commit\n{")
    (broken / "_delta_log" / "00000000000000000001.json").write_text("{}\n")
    with following(resources) as indexer:
        eventually(lambda: lag(database, run_of(0)) == 0 and lag(database, run_of(2)) == 0)
        eventually(lambda: indexer.monitor.snapshot()["runs_failing"] == 1)
        assert (indexer.state, indexer.monitor.healthy) == ("running", True)
    assert any(error.code == "SERVICE_FAILED" for error in indexer.monitor.errors)


@pytest.mark.parametrize(("runs", "indexed"), [("newest", [4]), ("*run0000[12]", [1, 2])])
def test_only_the_selected_runs_are_indexed(
    runs: str, indexed: list[int], maker: Any, resources: IndexerResources, database: Database, eventually: Eventually
) -> None:
    for number in range(5):
        announce(maker, run_of(number), (0, 9))
    with following(resources, runs):
        eventually(lambda: all(lag(database, run_of(number)) == 0 for number in indexed))
    assert [number for number in range(5) if lag(database, run_of(number)) is not None] == indexed


def test_many_runs_need_few_places_and_few_open_files(
    maker: Any, resources: IndexerResources, database: Database, eventually: Eventually
) -> None:
    runs = [run_of(number) for number in range(30)]
    for run_id in runs:
        announce(maker, run_id, (0, 1))
    most_runs = most_files = 0
    with following(resources) as indexer, Database(maker.database_url) as watching:
        for run_id in runs:
            watching.run(run_id, create=False)
        opened = open_files()

        def all_done() -> bool:
            nonlocal most_runs, most_files
            most_runs = max(most_runs, len(indexer.runs))
            most_files = max(most_files, open_files() - opened)
            return indexer.monitor.counter("batches_processed").value == len(runs)

        eventually(all_done)
        assert most_runs <= PLACES
        assert most_files < 30 * PLACES


def test_a_caught_up_indexer_ends_if_it_is_asked_to(
    maker: Any, resources: IndexerResources, database: Database
) -> None:
    for number in range(3):
        announce(maker, run_of(number), (0, 9))
    for kind in (MetadataIndexer, EnvironmentIndexer):
        options = IndexerOptions(runs="all", poll_interval_ms=10, flush_timeout_ms=10, until_caught_up=True)
        kind(f"{kind.__name__}", resources, options).run()
    assert [lag(database, run_of(number), "EnvironmentIndexer") for number in range(3)] == [0, 0, 0]


def test_a_paused_indexer_pauses_all_its_runs(
    maker: Any, resources: IndexerResources, database: Database, eventually: Eventually
) -> None:
    announce(maker, run_of(1), (0, 9))
    with following(resources) as indexer:
        eventually(lambda: lag(database, run_of(1)) == 0)
        indexer.pause()
        announce(maker, run_of(2), (0, 9))
        announce(maker, run_of(1), (10, 19))
        eventually(lambda: all(one.state == "paused" for one in indexer._following.children.values()))  # type: ignore[union-attr]
        indexer.resume()
        eventually(lambda: lag(database, run_of(1)) == 0 and lag(database, run_of(2)) == 0)


def test_a_file_of_a_run_that_is_not_in_the_storage_is_left_alone(
    maker: Any, resources: IndexerResources, database: Database, eventually: Eventually, tmp_path: Path
) -> None:
    """Another node with another storage shares the database. Its messages are not this indexer's."""
    announce(maker, run_of(1), (0, 9))
    (Path(maker.storage.url) / run_of(1)).rename(tmp_path / "elsewhere")
    announce(maker, run_of(2), (0, 9))
    with following(resources):
        eventually(lambda: lag(database, run_of(2)) == 0)
    assert lag(database, run_of(1)) is None
