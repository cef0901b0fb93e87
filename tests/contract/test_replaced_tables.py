"""Tables that go, come back or are replaced under a live indexer: what is acknowledged is in the table of its group."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from in_process import InProcess

from ticklake import Database
from ticklake.errors import GroupFillsAnotherTable
from ticklake.indexers.base import IndexerOptions, IndexerResources
from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.indexers.builtin.metadata import MetadataIndexer
from ticklake.indexers.finished_run import FinishedRun
from ticklake.lake.lake import Lake
from ticklake.lake.verify.coverage import covered

TABLE = "environment_data"
pytestmark = pytest.mark.warns("Flush failed", "TABLE_REPLACED", "e failed: GroupFillsAnotherTable")


@pytest.fixture
def database(maker: Any) -> Iterator[Database]:
    maker.metadata()
    with Database(maker.database_url) as opened:
        yield opened


def resources(maker: Any, database: Database, lake: Path, happens: Callable[[], object] = lambda: None) -> Any:
    made = IndexerResources(maker.storage, Lake(lake), database, spark=lambda: InProcess(happens=happens))
    MetadataIndexer("m", made).write(maker.run_id)
    return made


@contextmanager
def at_work(maker: Any, database: Database, lake: Path) -> Iterator[EnvironmentIndexer]:
    options = IndexerOptions(maker.run_id, flush_timeout_ms=20, insert_batch_size=10)
    indexer = EnvironmentIndexer("e", resources(maker, database, lake), options)
    indexer.start()
    try:
        yield indexer
    finally:
        indexer.stop(timeout=20)


def ticks(maker: Any, lake: Path) -> list[int]:
    found: list[int] = covered(Lake(lake).location(maker.run_id, TABLE)).ticks.tolist()
    return found


def lags(maker: Any, database: Database) -> list[int]:
    """None until the group has joined."""
    return [group.lag for group in database.run(maker.run_id).groups.list("batch-topic")]


def away(maker: Any, tmp_path: Path) -> Path:
    """The lake is moved: a file system that is not mounted any more looks the same."""
    return Path(shutil.move(maker.lake_folder, tmp_path / "away"))


def test_a_lake_that_is_away_for_a_moment_is_waited_for(
    maker: Any, database: Database, tmp_path: Path, eventually: Any
) -> None:
    lake = maker.lake_folder
    maker.publish(maker.batch(0, 9))
    with at_work(maker, database, lake) as indexer:
        eventually(lambda: lags(maker, database) == [0])
        moved = away(maker, tmp_path)
        maker.publish(maker.batch(10, 19))
        eventually(lambda: any("removed" in error.message for error in indexer.monitor.errors))
        assert lags(maker, database) == [1]
        assert not lake.exists(), "made anew"
        shutil.move(moved, lake)
        maker.publish(maker.batch(20, 29))
        eventually(lambda: lags(maker, database) == [0])
    assert ticks(maker, lake) == list(range(30))


def test_a_group_is_not_split_between_a_moved_lake_and_its_old_place(
    maker: Any, database: Database, tmp_path: Path, eventually: Any
) -> None:
    lake = maker.lake_folder
    maker.publish(maker.batch(0, 9))
    with at_work(maker, database, lake) as left_behind:
        eventually(lambda: lags(maker, database) == [0])
        moved = away(maker, tmp_path)
        with at_work(maker, database, moved):
            resources(maker, database, lake).tables.ledger(maker.run_id, EnvironmentIndexer.table)  # made anew
            for number in range(1, 9):
                maker.publish(maker.batch(number * 10, number * 10 + 9))
            eventually(lambda: left_behind.error is not None)
            assert isinstance(left_behind.error, GroupFillsAnotherTable)
            eventually(lambda: lags(maker, database) == [0])
    assert ticks(maker, moved) == list(range(90))
    assert ticks(maker, lake) == []


@pytest.mark.parametrize("how", ["moved", "restored"])
def test_a_batch_that_takes_two_flushes_is_done_in_one_table(
    maker: Any, database: Database, tmp_path: Path, eventually: Any, how: str
) -> None:
    """Its first half is gone with the table that was moved away, or with the commits after the backup."""
    table = maker.folder(TABLE)
    flushes = iter(range(100))
    indexers: list[EnvironmentIndexer] = []

    def happens() -> None:
        if next(flushes) != 2:  # the second half of the second batch; the first one is done
            return
        eventually(lambda: indexers[-1].monitor.counter("flushes").value == 1)
        shutil.copytree(tmp_path / "backup", table.with_name(".next"))
        table.rename(tmp_path / "old")
        if how == "restored":
            table.with_name(".next").rename(table)
        else:
            Lake(maker.lake_folder).ledger(maker.run_id, EnvironmentIndexer.table)  # type: ignore[arg-type]

    made = resources(maker, database, maker.lake_folder, happens)

    def index(size: int) -> None:
        options = IndexerOptions(maker.run_id, until_caught_up=True, insert_batch_size=size)
        indexers.append(EnvironmentIndexer("e", made, options))
        indexers[-1].run()

    maker.publish(maker.batch(0, 9))
    index(1000)
    shutil.copytree(table, tmp_path / "backup")
    maker.publish(maker.batch(10, 19))
    index(5)
    assert lags(maker, database) == [0]
    assert ticks(maker, maker.lake_folder) == list(range(0 if how == "restored" else 10, 20))


def test_a_coordinator_completes_files_for_the_table_that_has_them(
    maker: Any, database: Database, tmp_path: Path
) -> None:
    maker.batches(4, ticks=10)
    table = maker.folder(TABLE)
    flushes = iter(range(100))

    def happens() -> None:
        if next(flushes) == 2:
            table.rename(tmp_path / "old")
            Lake(maker.lake_folder).ledger(maker.run_id, EnvironmentIndexer.table)  # type: ignore[arg-type]

    made = resources(maker, database, maker.lake_folder, happens)
    work = FinishedRun(made, maker.run_id, [EnvironmentIndexer], insert_batch_size=10).prepare()
    work.start()
    while not work.wait(1.0):
        pass
    assert ticks(maker, maker.lake_folder) == list(range(40))
