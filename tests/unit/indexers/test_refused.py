"""Indexers that lack something, and runs without anything to index, are refused in one line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ticklake import BatchIndexer, Table
from ticklake.errors import (
    DatabaseNeeded,
    LakeNeeded,
    NothingToIndex,
    RowsMissing,
    RunNotFound,
    SparkNeeded,
    UnknownIndexer,
)
from ticklake.indexers.base import IndexerOptions, IndexerResources
from ticklake.indexers.batches import StoredBatches, id_at
from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.indexers.builtin.metadata import MetadataIndexer
from ticklake.indexers.finished_run import FinishedRun
from ticklake.indexers.registry import indexers_of
from ticklake.indexers.runs.turns import Turns
from ticklake.monitoring import Monitor


class Unfinished(BatchIndexer):
    """It has a table and no rows for it."""

    table = Table("unfinished", pa.schema([("tick_number", pa.int64())]), ("tick_number",))


class Counting(BatchIndexer):
    """It fills no table."""


def stored(maker: Any) -> IndexerResources:
    maker.metadata()
    maker.batch(0, 9)
    return IndexerResources(maker.storage, maker.lake)


def test_an_indexer_says_which_resource_it_lacks(maker: Any) -> None:
    resources = stored(maker)
    with pytest.raises(LakeNeeded):
        _ = IndexerResources(maker.storage).tables
    MetadataIndexer("metadata-indexer", resources).write(maker.run_id)
    options = IndexerOptions(maker.run_id)
    with pytest.raises(SparkNeeded, match="environment"):
        EnvironmentIndexer("environment", resources, options).flusher(maker.run_id)
    resources = replace(resources, spark=lambda: None)  # type: ignore[arg-type,return-value]
    for kind in (MetadataIndexer, EnvironmentIndexer):
        with pytest.raises(DatabaseNeeded, match="lonely"):
            kind("lonely", resources, options).run()
        with pytest.raises(DatabaseNeeded, match="lonely"):
            kind("lonely", resources, IndexerOptions(runs="all")).run()


def test_an_indexer_of_ones_own_needs_rows_and_a_table() -> None:
    with pytest.raises(RowsMissing):
        Unfinished.rows(pa.RecordBatch.from_pylist([]), None)
    with pytest.raises(UnknownIndexer, match="it has no table"):
        indexers_of([f"{__name__}:Counting"])


def test_an_indexer_without_a_table_has_nothing_to_acknowledge(maker: Any) -> None:
    assert Counting("counting", stored(maker)).acknowledge_present(maker.run_id, 1) == []


def test_a_run_that_is_not_there_or_has_no_files_cannot_be_indexed(maker: Any) -> None:
    with pytest.raises(RunNotFound, match="none"):
        FinishedRun(IndexerResources(maker.storage, maker.lake), maker.run_id, [EnvironmentIndexer]).prepare()
    maker.metadata()
    with pytest.raises(NothingToIndex):
        FinishedRun(IndexerResources(maker.storage, maker.lake), maker.run_id, [EnvironmentIndexer]).prepare()


def test_files_of_a_storage_need_no_claims(maker: Any) -> None:
    stored(maker)
    with StoredBatches(maker.storage, maker.run_id, Monitor("m")) as batches:
        assert batches.renew([]) == []


def test_a_folder_without_a_readable_table_has_no_id(tmp_path: Path) -> None:
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log" / "00000000000000000000.json").write_text("not a commit\n")
    assert id_at(tmp_path) is None


def test_turns_need_a_place_for_the_newest_run_and_one_more() -> None:
    with pytest.raises(ValueError, match="not 1"):
        Turns(places=1)
