"""A batch file that cannot be indexed whole is not indexed at all, however it is cut into flushes and tasks."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from deltalake import DeltaTable

from ticklake import BatchInfo
from ticklake.cli import cli
from ticklake.indexers.base import IndexerOptions, IndexerResources
from ticklake.indexers.batch import BatchIndexer
from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.indexers.builtin.organism import OrganismIndexer
from ticklake.indexers.builtin.simple import SimpleBatchIndexer
from ticklake.indexers.shared_runs import Coordinated
from ticklake.lake.table import Table
from ticklake.storage.codec import CellColumns, encode_ticks
from ticklake.storage.files import Storage
from ticklake.topics import Database
from ticklake.world import World

Index = Callable[..., BatchIndexer]
BAD_TICK = 180


class Files:
    """A good file before and after a bad one, 100 ticks each."""

    def __init__(self, maker: Any) -> None:
        self.maker = maker
        maker.metadata()
        self.good = [*range(100), *range(200, 300)]

    def with_a_bad_tick(self) -> list[BatchInfo]:
        """Tick 180 has a cell outside of the world, which has 100."""
        ticks = [self.maker._tick(number, 10) for number in range(100, 200)]
        place = BAD_TICK - 100
        cells = ticks[place].cells
        outside = np.append(cells.flat_index[:-1], 100)
        ticks[place] = replace(
            ticks[place], cells=CellColumns(outside, cells.molecule_type, cells.molecule_value, cells.owner_id)
        )
        file = self.maker.storage.write_batch(self.maker.run_id, encode_ticks(self.maker.run_id, ticks))
        bad = BatchInfo(simulation_run_id=self.maker.run_id, storage_key=file.key, tick_start=100, tick_end=199)
        return [self.maker.batch(0, 99), bad, self.maker.batch(200, 299)]

    def with_a_torn_file(self) -> list[BatchInfo]:
        """The last tick of a file without compression, and so without a checksum, is cut off."""
        self.maker.storage = Storage(self.maker.storage.url, compress=False)
        batches = self.maker.batches(3)
        path = Path(self.maker.storage.url) / batches[1].storage_key
        path.write_bytes(path.read_bytes()[:-3])
        return list(batches)

    def check(self, table: str = "environment_data") -> None:
        """Only the good files are there, and the commits claim just their ticks."""
        found = DeltaTable(self.maker.folder(table))
        ticks = found.to_pyarrow_table().column("tick_number").to_pylist()
        assert sorted(set(ticks)) == self.good
        assert claimed(found) == self.good


def claimed(table: DeltaTable) -> list[int]:
    """Every tick that a commit of the table claims as its own."""
    ticks: list[int] = []
    for commit in table.history():
        for source in json.loads(commit.get("ticklake.sources", "[]")):
            ticks += range(source["ticks"][0], source["ticks"][1] + 1)
    return sorted(ticks)


@pytest.fixture
def files(maker: Any) -> Files:
    return Files(maker)


@pytest.fixture(params=["with_a_bad_tick", "with_a_torn_file"])
def batches(request: pytest.FixtureRequest, files: Files) -> list[BatchInfo]:
    made: list[BatchInfo] = getattr(files, request.param)()
    return made


# One flush for all; flushes that cut the bad file, also so that its first slices are good; a flush a tick.
@pytest.mark.parametrize("insert_batch_size", [pytest.param(1000, marks=pytest.mark.slow), 150, 30])
@pytest.mark.warns("DEAD_LETTER")
def test_nothing_of_a_bad_file_is_indexed(
    files: Files, batches: list[BatchInfo], index_topic: Index, resources: IndexerResources, insert_batch_size: int
) -> None:
    files.maker.publish(*batches)
    indexer = index_topic_with(files.maker, resources, index_topic, insert_batch_size)
    files.check()
    assert indexer.monitor.counter("batches_failed").value == 1
    assert indexer.monitor.counter("ticks_processed").value == 200
    assert batches[1].storage_key in next(iter(indexer.monitor.errors)).message


def index_topic_with(maker: Any, resources: IndexerResources, index_topic: Index, size: int) -> BatchIndexer:
    # The storage may have been made anew since the fixture looked at it.
    object.__setattr__(resources, "storage", maker.storage)
    return index_topic(EnvironmentIndexer, insert_batch_size=size, max_delivery_attempts=1)


@pytest.mark.warns("DEAD_LETTER")
def test_nor_by_an_indexer_that_flushes_each_tick(files: Files, index_topic: Index) -> None:
    files.good = [*range(8), *range(16, 24)]
    maker = files.maker
    maker.storage = Storage(maker.storage.url, compress=False)
    batches = [maker.batch(start, start + 7) for start in (0, 8, 16)]
    path = Path(maker.storage.url) / batches[1].storage_key
    path.write_bytes(path.read_bytes()[:-3])
    maker.publish(*batches)
    index_topic(SimpleBatchIndexer, max_delivery_attempts=1)
    files.check("simple_data")


@pytest.mark.warns("batch_0000000100_0000000199")
@pytest.mark.parametrize("insert_batch_size", [pytest.param(1000, marks=pytest.mark.slow), 30])
def test_nor_by_indexers_that_share_the_work_through_a_coordinator(
    files: Files,
    resources: IndexerResources,
    database: Database,
    index_metadata: Callable[[], None],
    insert_batch_size: int,
) -> None:
    files.with_a_bad_tick()
    index_metadata()
    options = IndexerOptions(files.maker.run_id, until_caught_up=True, insert_batch_size=insert_batch_size)
    opened = Coordinated(database, resources, EnvironmentIndexer, options)
    EnvironmentIndexer("environment-indexer", resources, options, opened).run()
    files.check()


@pytest.mark.warns("batch_0000000100_0000000199")
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("insert_batch_size", [pytest.param("1000", marks=pytest.mark.slow), "30"])
def test_nor_by_the_command_which_reads_files_once_for_both_tables(files: Files, insert_batch_size: str) -> None:
    files.with_a_bad_tick()
    done = run_index(files.maker, "--insert-batch-size", insert_batch_size)
    assert done.exit_code == 1
    said = r"batch_0000000100_0000000199\S* is refused .* tick 180: .* Nothing of it is added to a table"
    assert re.search(said, done.stderr), done.stderr
    files.check()
    # Organisms are read without the cells, so the file is good for their table.
    organisms = DeltaTable(files.maker.folder("organism_data"))
    assert sorted(organisms.to_pyarrow_table().column("tick_number").to_pylist()) == list(range(300))


def run_index(maker: Any, *options: str) -> Result:
    places = ("--storage", maker.storage.url, "--lake", str(maker.lake.root), "--master", "local[2]")
    return CliRunner().invoke(cli, ["index", maker.run_id, *places, *options])


class Faulty(BatchIndexer):
    """An indexer of a user's own that does one tick wrong."""

    table: ClassVar[Table] = Table(
        "faulty", schema=pa.schema([("tick_number", pa.int64()), ("part", pa.int32())]), key=("tick_number", "part")
    )


class Raises(Faulty):
    """It raises."""

    @staticmethod
    def rows(ticks: pa.RecordBatch, world: World | None) -> pa.RecordBatch:
        return _rows(ticks, lambda _: 1 // 0)


class Strays(Faulty):
    """It has a row for a tick that it was not given."""

    @staticmethod
    def rows(ticks: pa.RecordBatch, world: World | None) -> pa.RecordBatch:
        return _rows(ticks, lambda tick: [(tick + 1000, 0)])


class Repeats(Faulty):
    """It has a key twice."""

    @staticmethod
    def rows(ticks: pa.RecordBatch, world: World | None) -> pa.RecordBatch:
        return _rows(ticks, lambda tick: [(tick, 0), (tick, 0)])


class Leaves(Faulty):
    """It leaves a part of a key out."""

    @staticmethod
    def rows(ticks: pa.RecordBatch, world: World | None) -> pa.RecordBatch:
        return _rows(ticks, lambda tick: [(tick, None)])


class Empties(Faulty):
    """It leaves the tick out of a key."""

    @staticmethod
    def rows(ticks: pa.RecordBatch, world: World | None) -> pa.RecordBatch:
        return _rows(ticks, lambda _: [(None, 0)])


def _rows(ticks: pa.RecordBatch, wrong: Callable[[int], Any]) -> pa.RecordBatch:
    def of(tick: int) -> Iterator[tuple[int | None, int | None]]:
        yield from wrong(tick) if tick == BAD_TICK else [(tick, part) for part in range(3)]

    rows = [row for tick in ticks.column("tick_number").to_pylist() for row in of(tick)]
    return pa.RecordBatch.from_pylist(
        [dict(zip(("tick_number", "part"), row, strict=True)) for row in rows], schema=Faulty.table.schema
    )


@pytest.mark.warns("DEAD_LETTER")
@pytest.mark.parametrize("insert_batch_size", [pytest.param(1000, marks=pytest.mark.slow), 30])
@pytest.mark.parametrize("kind", [Raises, Strays, Repeats, Leaves, Empties])
def test_nor_by_an_indexer_that_makes_a_mistake_at_one_tick(
    files: Files, index_topic: Index, kind: type[BatchIndexer], insert_batch_size: int
) -> None:
    maker = files.maker
    maker.publish(*maker.batches(3))
    index_topic(kind, max_delivery_attempts=1, insert_batch_size=insert_batch_size)
    files.check("faulty")


@pytest.mark.warns("DEAD_LETTER", "trying again")
@pytest.mark.parametrize("insert_batch_size", [pytest.param(1000, marks=pytest.mark.slow), 30])
def test_a_bad_file_that_is_mended_is_indexed_whole_when_it_comes_again(
    files: Files, index_topic: Index, insert_batch_size: int
) -> None:
    batches = files.with_a_bad_tick()
    files.maker.publish(*batches)
    index_topic(EnvironmentIndexer, insert_batch_size=insert_batch_size, max_delivery_attempts=1)
    (Path(files.maker.storage.url) / batches[1].storage_key).unlink()
    files.maker.publish(files.maker.batch(100, 199))
    index_topic(EnvironmentIndexer, insert_batch_size=insert_batch_size)
    files.good = list(range(300))
    files.check()
    assert files.maker.keys() == sorted(files.maker.expected_keys(range(300)))


@pytest.mark.warns("DEAD_LETTER")
def test_what_a_table_has_already_is_not_claimed_again(files: Files, index_topic: Index) -> None:
    maker = files.maker
    maker.publish(maker.batch(20, 39), maker.batch(0, 99))
    index_topic(EnvironmentIndexer)
    maker.publish(maker.batch(0, 199))
    index_topic(EnvironmentIndexer, insert_batch_size=30)
    files.good = list(range(200))
    files.check()


@pytest.mark.warns("DEAD_LETTER")
def test_a_table_that_can_take_the_file_is_not_held_up_by_one_that_cannot(files: Files, index_topic: Index) -> None:
    files.maker.publish(*files.with_a_bad_tick())
    index_topic(EnvironmentIndexer, max_delivery_attempts=1)
    index_topic(OrganismIndexer, max_delivery_attempts=1)
    files.check()
    assert files.maker.keys("organism_data", "organism_id") == [(tick, 1) for tick in range(300)]
