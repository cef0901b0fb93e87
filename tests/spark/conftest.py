"""Indexers on the worker's Spark session, over a small run of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ticklake.indexers.base import IndexerOptions, IndexerResources
from ticklake.indexers.batch import BatchIndexer
from ticklake.indexers.batches import StoredBatches
from ticklake.indexers.metadata import MetadataIndexer
from ticklake.topics import Database

Index = Callable[..., BatchIndexer]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/spark" in item.path.as_posix():
            item.add_marker(pytest.mark.spark)


@pytest.fixture
def database(maker: Any) -> Iterator[Database]:
    with Database(maker.database_url) as database:
        yield database


@pytest.fixture
def resources(maker: Any, database: Database, spark: SparkSession) -> IndexerResources:
    return IndexerResources(maker.storage, maker.lake, database, spark=lambda: spark)


@pytest.fixture
def index_metadata(maker: Any, resources: IndexerResources) -> Callable[[], None]:
    return lambda: MetadataIndexer("metadata-indexer", resources).write(maker.run_id)


@pytest.fixture
def index_topic(maker: Any, resources: IndexerResources, index_metadata: Callable[[], None]) -> Index:
    """Runs an indexer over what is on the topic until it has caught up."""

    def index(kind: type[BatchIndexer], **options: Any) -> BatchIndexer:
        index_metadata()
        indexer = kind(kind.__name__, resources, IndexerOptions(maker.run_id, until_caught_up=True, **options))
        indexer.run()
        return indexer

    return index


@pytest.fixture
def index_storage(maker: Any, resources: IndexerResources, index_metadata: Callable[[], None]) -> Index:
    """Runs an indexer straight over the files in storage."""

    def index(kind: type[BatchIndexer], **options: Any) -> BatchIndexer:
        index_metadata()
        indexer = kind(
            kind.__name__,
            resources,
            IndexerOptions(maker.run_id, until_caught_up=True, **options),
            batches_of=lambda run_id, monitor: StoredBatches(maker.storage, run_id, monitor),
        )
        indexer.run()
        return indexer

    return index
