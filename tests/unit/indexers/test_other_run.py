"""A message of a run that names a file of another one is a bad message: nothing of that file is indexed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.crash.in_process import InProcess

from ticklake.contracts import MetadataInfo
from ticklake.errors import KeyOfAnotherRun
from ticklake.indexers.base import IndexerOptions, IndexerResources
from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.indexers.builtin.metadata import MetadataIndexer
from ticklake.lake.metadata import read_metadata
from ticklake.topics import Database

OTHER = "20251014-143025-550e8401"


@pytest.fixture
def database(maker: Any) -> Iterator[Database]:
    with Database(maker.database_url) as opened:
        yield opened


def resources(maker: Any, database: Database) -> IndexerResources:
    spark: Any = InProcess()
    return IndexerResources(maker.storage, maker.lake, database, spark=lambda: spark)


@pytest.mark.warns("DEAD_LETTER")
def test_a_batch_file_of_another_run_is_a_dead_letter(maker: Any, database: Database) -> None:
    mine = maker.run_id
    maker.run_id = OTHER
    foreign = maker.batch(10, 19, cells=5)
    maker.run_id = foreign.simulation_run_id = mine
    maker.metadata()
    maker.publish(maker.batch(0, 9), foreign, maker.batch(10, 19))
    MetadataIndexer("metadata", resources(maker, database)).write(mine)
    options = IndexerOptions(mine, until_caught_up=True, max_delivery_attempts=1)
    EnvironmentIndexer("cells", resources(maker, database), options).run()
    assert maker.keys() == sorted(maker.expected_keys(range(20)))
    (dead,) = database.run(mine).dead_letters.list()
    assert foreign.storage_key in str(dead.error)


def test_metadata_of_another_run_is_not_written(maker: Any, database: Database) -> None:
    mine = maker.run_id
    maker.run_id = OTHER
    maker.metadata(step=10)
    with database.run(mine).writer("metadata-topic") as writer:
        writer.send(MetadataInfo(simulation_run_id=mine, storage_key=f"{OTHER}/metadata.pb.zst"))
    indexer = MetadataIndexer("metadata", resources(maker, database), IndexerOptions(mine, topic_poll_timeout_ms=2000))
    with pytest.raises(KeyOfAnotherRun):
        indexer.run()
    assert read_metadata(maker.lake.location(mine, "metadata"), mine) is None
