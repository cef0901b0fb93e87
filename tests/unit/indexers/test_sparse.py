"""What a batch file holds decides how it is indexed, not how far apart its first and its last tick are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from deltalake import DeltaTable
from in_process import InProcess

from ticklake.indexers.base import IndexerOptions, IndexerResources
from ticklake.indexers.batches import StoredBatches
from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.indexers.builtin.metadata import MetadataIndexer
from ticklake.storage.codec import encode_ticks

FAR = 2 * 10**9


@pytest.fixture
def run(maker: Any) -> Any:
    maker.metadata()
    MetadataIndexer("metadata-indexer", IndexerResources(maker.storage, maker.lake)).write(maker.run_id)
    return maker


def index(run: Any, size: int) -> dict[str, str]:
    spark, sources = InProcess(), []
    resources = IndexerResources(run.storage, run.lake, spark=lambda: spark)

    def source(run_id: Any, monitor: Any) -> StoredBatches:
        sources.append(StoredBatches(run.storage, run_id, monitor))
        return sources[0]

    options = IndexerOptions(run.run_id, until_caught_up=True, insert_batch_size=size)
    EnvironmentIndexer("environment-indexer", resources, options, source).run()
    return sources[0].failed


def ticks(run: Any) -> list[int]:
    table = DeltaTable(run.folder("environment_data"))
    return sorted(set(table.to_pyarrow_table().column("tick_number").to_pylist()))


@pytest.mark.timeout(60)
def test_a_file_with_few_ticks_far_apart_takes_a_few_flushes(run: Any) -> None:
    numbers = [0, 1, 2500, 10**6, 10**9, FAR]
    run.storage.write_batch(run.run_id, encode_ticks(run.run_id, [run._tick(n, 1) for n in numbers]))
    run.batch(3, 9, cells=1)
    assert not index(run, 2)
    assert ticks(run) == sorted([*numbers, *range(3, 10)])
    table = DeltaTable(run.folder("environment_data"))
    assert table.version() < 15


@pytest.mark.warns("outside the world")
def test_a_bad_file_adds_nothing_also_if_the_table_has_its_bad_tick(run: Any) -> None:
    run.batch(0, 9)
    assert not index(run, 100)
    numbers = [run._tick(n, 10) for n in range(5, 15)]
    cells = replace(numbers[2].cells, flat_index=numbers[2].cells.flat_index + 10**6)
    numbers[2] = replace(numbers[2], cells=cells)
    run.storage.write_batch(run.run_id, encode_ticks(run.run_id, numbers))
    for size in (100, 3):
        (failed,) = index(run, size)
        assert "batch_" in failed
        assert ticks(run) == list(range(10))
