"""`ticklake index` acknowledges what it has indexed for the groups of the same tables, and never anything else."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from deltalake import DeltaTable
from tests.crash.in_process import InProcess

from ticklake import BatchInfo, Database
from ticklake.contracts import MetadataInfo
from ticklake.coordination import unbind
from ticklake.indexers.base import IndexerOptions, IndexerResources
from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.indexers.builtin.organism import OrganismIndexer
from ticklake.indexers.finished_run import FinishedRun
from ticklake.indexers.subscription import _Present
from ticklake.lake.lake import Lake
from ticklake.storage.codec import encode_ticks
from ticklake.storage.files import Storage
from ticklake.ticks import TickRange
from ticklake.topics import Run

TOPIC = "batch-topic"
INDEXERS = {"environment-indexer": EnvironmentIndexer, "organism-indexer": OrganismIndexer}


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    with Database(database_url) as opened:
        yield opened


class World:
    """A run whose node has indexed the first file and died. Files were announced after that."""

    def __init__(self, maker: Any, database: Database) -> None:
        maker.run_id = f"20251014-143025-{uuid4().hex[:8]}"
        self.maker, self.database = maker, database
        maker.metadata()
        self.run: Run = database.run(maker.run_id)
        self.announce(maker.batch(0, 9))
        self.prepare()
        for name, kind in INDEXERS.items():
            kind(name, self.resources(), IndexerOptions(maker.run_id, until_caught_up=True)).run()
        assert self.lags() == {"environment-indexer": 0, "organism-indexer": 0}

    def resources(self, lake: Lake | None = None, storage: Storage | None = None) -> IndexerResources:
        spark: Any = InProcess()
        return IndexerResources(
            storage or self.maker.storage, lake or self.maker.lake, self.database, spark=lambda: spark
        )

    def prepare(self) -> None:
        FinishedRun(self.resources(), self.maker.run_id, [EnvironmentIndexer]).prepare()

    def announce(self, *messages: BatchInfo | MetadataInfo) -> None:
        with self.run.writer(TOPIC) as writer:
            writer.send_many(messages)

    def index(
        self,
        kinds: Any = (EnvironmentIndexer, OrganismIndexer),
        ticks: TickRange | None = None,
        lake: Lake | None = None,
    ) -> dict[str, tuple[int, int]]:
        """Returns what was acknowledged and what is left, by group."""
        work = FinishedRun(self.resources(lake), self.maker.run_id, kinds, ticks).prepare().start()
        while not work.wait(1.0):
            pass
        return {one.group: (one.acknowledged, one.left) for one in work.acknowledge()}

    def lags(self) -> dict[str, int]:
        return {one.group: one.lag for one in self.run.groups.list(TOPIC)}

    def file(self, info: BatchInfo) -> Path:
        (found,) = (self.maker.lake_folder.parent / "storage").rglob(info.storage_key.rpartition("/")[2])
        return found

    def open_ticks(self, group: str) -> list[tuple[int, int]]:
        """The ticks of the messages that the group has not acknowledged."""
        found = self.run.browse(TOPIC, limit=1000, group=group)
        payloads = [one.opened().payload for one in found if one.state not in ("acknowledged", "set aside")]
        return [(one.tick_start, one.tick_end) for one in payloads]

    def rows(self, table: str) -> set[int]:
        directory = self.maker.folder(table)
        return set(DeltaTable(directory).to_pyarrow_table(columns=["tick_number"]).column(0).to_pylist())


@pytest.fixture
def world(maker: Any, database: Database) -> World:
    return World(maker, database)


def test_what_was_indexed_is_acknowledged_for_the_groups_of_the_tables(world: World) -> None:
    world.announce(*(world.maker.batch(at, at + 9) for at in range(10, 660, 10)))
    assert world.lags() == {"environment-indexer": 65, "organism-indexer": 65}
    assert world.index() == {"environment-indexer": (65, 0), "organism-indexer": (65, 0)}
    assert world.lags() == {"environment-indexer": 0, "organism-indexer": 0}
    assert world.rows("environment_data") == world.rows("organism_data") == set(range(660))
    assert world.index() == {}, "nothing is left to acknowledge"


def test_a_group_of_another_table_keeps_its_messages(world: World) -> None:
    world.announce(world.maker.batch(10, 19))
    world.run.reader(TOPIC, group="audit").close()
    assert world.index([EnvironmentIndexer]) == {"environment-indexer": (1, 0)}
    assert world.lags() == {"audit": 2, "environment-indexer": 0, "organism-indexer": 1}


def test_a_group_that_fills_a_table_of_another_lake_keeps_its_messages(world: World, tmp_path: Any) -> None:
    world.announce(world.maker.batch(10, 19))
    assert world.index([EnvironmentIndexer], lake=Lake(tmp_path / "other")) == {}
    assert world.lags() == {"environment-indexer": 1, "organism-indexer": 1}


def test_a_message_of_ticks_that_are_not_in_the_table_is_given_back(world: World) -> None:
    world.announce(*(world.maker.batch(at, at + 9) for at in range(10, 60, 10)))
    assert world.index([EnvironmentIndexer], TickRange(20, 34)) == {"environment-indexer": (1, 4)}
    assert world.open_ticks("environment-indexer") == [(10, 19), (30, 39), (40, 49), (50, 59)]
    (status,) = [one for one in world.run.groups.list(TOPIC) if one.group == "environment-indexer"]
    assert status.claimed == 0
    attempts = [one.attempts for one in world.run.reader(TOPIC, group="environment-indexer").poll_many(10, 5)]
    assert attempts == [1, 1, 1, 1], "looking at a message is no attempt"


@pytest.mark.warns("BATCH_FAILED|failed")
def test_a_file_that_cannot_be_indexed_keeps_its_message(world: World) -> None:
    bad = world.maker.batch(10, 19)
    world.announce(bad, world.maker.batch(20, 29))
    world.file(bad).write_bytes(world.file(bad).read_bytes()[:50])
    assert world.index([EnvironmentIndexer]) == {"environment-indexer": (1, 1)}
    assert world.open_ticks("environment-indexer") == [(10, 19)]


def test_messages_that_announce_no_file_of_the_run_are_kept(world: World) -> None:
    other = BatchInfo(simulation_run_id="other", storage_key="other/batch_0000000000_0000000009.pb", tick_end=9)
    foreign = BatchInfo(simulation_run_id=world.run.id, storage_key="other/batch_0000000000_0000000009.pb", tick_end=9)
    world.announce(MetadataInfo(simulation_run_id=world.run.id), other, foreign, world.maker.batch(10, 19))
    assert world.index([EnvironmentIndexer]) == {"environment-indexer": (1, 3)}


def test_messages_that_another_consumer_holds_are_left_alone(world: World) -> None:
    world.announce(*(world.maker.batch(at, at + 9) for at in range(10, 60, 10)))
    with world.run.reader(TOPIC, group="environment-indexer") as live:
        held = live.poll_many(2, 5)
        assert world.index([EnvironmentIndexer]) == {"environment-indexer": (3, 2)}
        assert all(live.ack_many(held)), "its claims are still valid"
    assert world.lags()["environment-indexer"] == 0


def short_file(world: World) -> BatchInfo:
    """A file that lacks two of the ticks that its name promises."""
    ticks = [world.maker._tick(number, 10) for number in range(10, 20) if number not in (14, 15)]
    file = world.maker.storage.write_batch(world.run.id, encode_ticks(world.run.id, ticks))
    return BatchInfo(simulation_run_id=world.run.id, storage_key=file.key, tick_start=10, tick_end=19)


@pytest.mark.warns("it lacks ticks that its name promises")
def test_a_file_that_lacks_ticks_is_acknowledged_if_the_table_has_all_that_it_has(world: World) -> None:
    world.announce(short_file(world))
    assert world.index([EnvironmentIndexer]) == {"environment-indexer": (1, 0)}


@pytest.mark.warns("it lacks ticks that its name promises", "they are indexed again")
def test_a_file_that_lacked_ticks_and_has_them_now_keeps_its_message(world: World) -> None:
    info = short_file(world)
    assert world.index([EnvironmentIndexer]) == {}
    world.announce(info)
    world.file(info).unlink()
    world.maker.batch(10, 19)
    assert world.index([EnvironmentIndexer], TickRange(0, 9)) == {"environment-indexer": (0, 1)}
    assert world.index([EnvironmentIndexer]) == {"environment-indexer": (1, 0)}
    assert world.rows("environment_data") == set(range(20))


def test_a_group_that_is_given_another_table_meanwhile_keeps_its_messages(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.announce(world.maker.batch(10, 19))
    present = _Present.of

    def unbound_meanwhile(self: _Present, messages: Any) -> Any:
        assert unbind(world.run, TOPIC, "environment-indexer") is not None
        return present(self, messages)

    monkeypatch.setattr(_Present, "of", unbound_meanwhile)
    assert world.index([EnvironmentIndexer]) == {"environment-indexer": (0, 1)}
    assert world.open_ticks("environment-indexer") == [(10, 19)]


def test_two_that_acknowledge_at_once_do_it_once(world: World) -> None:
    world.announce(*(world.maker.batch(at, at + 9) for at in range(10, 660, 10)))
    world.index([OrganismIndexer])
    FinishedRun(world.resources(), world.maker.run_id, [EnvironmentIndexer]).prepare().start().wait(60)
    works = [FinishedRun(world.resources(), world.maker.run_id, [EnvironmentIndexer]).prepare() for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        found = [one for done in pool.map(FinishedRun.acknowledge, works) for one in done]
    assert sum(one.acknowledged for one in found) == 65
    assert world.lags()["environment-indexer"] == 0


@pytest.mark.warns("are not acknowledged: .* damaged|are not acknowledged")
def test_a_damaged_table_acknowledges_nothing(world: World) -> None:
    world.announce(world.maker.batch(0, 9))
    for file in world.maker.folder("environment_data").rglob("*.parquet"):
        file.write_bytes(b"no parquet")
    work = FinishedRun(world.resources(), world.maker.run_id, [EnvironmentIndexer]).prepare()
    assert work.acknowledge() == []
    assert world.lags()["environment-indexer"] == 1


def test_a_table_that_was_made_anew_acknowledges_nothing_for_the_group_of_the_old_one(world: World) -> None:
    world.announce(world.maker.batch(10, 19))
    shutil.rmtree(world.maker.folder("environment_data"))
    assert world.index([EnvironmentIndexer]) == {}
    assert world.lags()["environment-indexer"] == 1


def test_a_copy_of_the_table_acknowledges_nothing_and_a_moved_table_does(world: World, tmp_path: Path) -> None:
    world.announce(world.maker.batch(10, 19))
    copied, moved = tmp_path / "copied", tmp_path / "moved"
    shutil.copytree(world.maker.lake_folder, copied)
    assert world.index([EnvironmentIndexer], TickRange(0, 19), Lake(copied)) == {}
    assert world.lags()["environment-indexer"] == 1
    shutil.rmtree(copied)
    world.maker.lake_folder.rename(moved)
    assert world.index([EnvironmentIndexer], TickRange(0, 19), Lake(moved)) == {"environment-indexer": (1, 0)}
