"""An indexer with a coordinator that follows many runs: it finds them by their files, without a topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from ticklake import RunCompleted
from ticklake.coordination import Coordinator, End, FoundFile, Target, files_left, recorded_end
from ticklake.indexers.base import IndexerOptions, IndexerResources
from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.indexers.builtin.metadata import MetadataIndexer
from ticklake.indexers.runs.turns import PLACES
from ticklake.indexers.shared_runs import Coordinated
from ticklake.storage import parse_batch_name
from ticklake.topics import Database

Eventually = Callable[..., None]


def run_of(number: int) -> str:
    return f"20261101-1200{number:02}-run{number:05}"


def produce(maker: Any, resources: IndexerResources, number: int, *ticks: tuple[int, int], end: bool = False) -> None:
    maker.run_id = run_of(number)
    maker.metadata()
    MetadataIndexer("metadata-indexer", resources).write(maker.run_id)
    for one in ticks:
        maker.batch(*one)
    if end:
        maker.storage.write_completion(RunCompleted(simulation_run_id=maker.run_id, last_tick=ticks[-1][1]))


def indexer_of(resources: IndexerResources, database: Database, **options: Any) -> EnvironmentIndexer:
    given = IndexerOptions(runs="all", poll_interval_ms=20, flush_timeout_ms=20, **options)
    resources = replace(resources, database=database)
    source = Coordinated(database, resources, EnvironmentIndexer, given)
    return EnvironmentIndexer("environment-indexer", resources, given, source)


@contextmanager
def following(resources: IndexerResources, database: Database) -> Iterator[EnvironmentIndexer]:
    with indexer_of(resources, database) as indexer:
        yield indexer


def is_indexed(maker: Any, number: int, ticks: int) -> bool:
    maker.run_id = run_of(number)
    table = maker.folder("environment_data")
    return DeltaTable.is_deltatable(str(table)) and maker.keys() == sorted(maker.expected_keys(range(ticks)))


def target(maker: Any, number: int) -> Target:
    ledger = EnvironmentIndexer.ledger(maker.lake, run_of(number))
    return Target.at(ledger.id, ledger.location.url)


def test_old_runs_and_new_ones_are_indexed_from_their_files(
    maker: Any, resources: IndexerResources, database: Database, eventually: Eventually
) -> None:
    for number in range(2 * PLACES):
        produce(maker, resources, number, (0, 4), (5, 9), end=True)
    with following(resources, database) as indexer:
        eventually(lambda: all(is_indexed(maker, number, 10) for number in range(2 * PLACES)))
        produce(maker, resources, 50, (0, 9))
        eventually(lambda: is_indexed(maker, 50, 10))
        maker.run_id = run_of(50)
        maker.batch(10, 19)
        eventually(lambda: is_indexed(maker, 50, 20))
        produce(maker, resources, 51, (0, 9))
        eventually(lambda: is_indexed(maker, 51, 10))
        assert len(indexer.runs) <= PLACES
    for number in range(2 * PLACES):
        run = database.run(run_of(number), create=False)
        assert recorded_end(run, "EnvironmentIndexer", target(maker, number)) == End(9)
    assert indexer.monitor.counter("ticks_processed").value == 10 * (2 * PLACES + 1) + 20


def test_an_indexer_with_a_coordinator_ends_when_it_has_caught_up_with_all_runs(
    maker: Any, resources: IndexerResources, database: Database
) -> None:
    for number in range(3):
        produce(maker, resources, number, (0, 9))
    indexer = indexer_of(resources, database, until_caught_up=True)
    indexer.run()
    assert all(is_indexed(maker, number, 10) for number in range(3))
    assert indexer.source is not None and [indexer.source.count(run_of(number)) for number in range(3)] == [0, 0, 0]


def test_many_runs_need_few_open_files(
    maker: Any, resources: IndexerResources, database: Database, eventually: Eventually
) -> None:
    for number in range(30):
        produce(maker, resources, number, (0, 1))
    before, most = open_files(), 0
    with following(resources, database):

        def all_done() -> bool:
            nonlocal most
            most = max(most, open_files() - before)
            return all(maker.lake.location(run_of(number), "environment_data").exists() for number in range(30))

        eventually(all_done)
        eventually(lambda: all(is_indexed(maker, number, 2) for number in range(30)))
    assert most < 30 * PLACES


def test_a_restarted_node_takes_over_what_its_ended_process_has_claimed(
    maker: Any, resources: IndexerResources, database: Database, eventually: Eventually
) -> None:
    produce(maker, resources, 1, (0, 9))
    name = next(maker.storage.every_batch(run_of(1))).key.partition("/")[2]
    run, table = database.run(run_of(1)), target(maker, 1)
    dead = Coordinator(run, "EnvironmentIndexer", step=1, table=table, lease=3600, instance="node/1:a")
    assert dead.claim([FoundFile(name, parse_batch_name(name))], 1)  # type: ignore[arg-type]
    assert files_left(run, "EnvironmentIndexer", table, [name]).in_work == 1
    with following(replace(resources, consumer=lambda: "node/2"), database):
        eventually(lambda: is_indexed(maker, 1, 10))


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
