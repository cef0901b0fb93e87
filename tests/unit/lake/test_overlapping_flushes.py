"""Flushes of one table that are under way at the same time, and other writers in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from in_process import InProcess

from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.lake.flush.flush import Flusher
from ticklake.lake.flush.task import Work
from ticklake.lake.slices import Slice
from ticklake.world import World

TABLE = EnvironmentIndexer.table


@pytest.fixture
def slices(maker: Any) -> list[Slice]:
    maker.metadata()
    return [Slice(file, file.ticks) for file in map(maker.storage.batch, (b.storage_key for b in maker.batches(3, 10)))]


@pytest.fixture
def flusher(maker: Any) -> Callable[[], Flusher]:
    """Each one opens the table for itself, as an indexer of its own would."""

    def open_flusher() -> Flusher:
        work = Work(
            flush_id="",
            storage=maker.storage,
            world=World.of(maker.storage.read_metadata(maker.run_id)),
            reads=EnvironmentIndexer.reads,
            table=TABLE,
            location=maker.lake.location(maker.run_id, TABLE.name),
            rows=EnvironmentIndexer.rows,
        )
        return Flusher(InProcess, work, maker.lake.ledger(maker.run_id, TABLE))

    return open_flusher


def test_a_flush_commits_while_the_job_of_another_runs(
    maker: Any, slices: list[Slice], flusher: Callable[[], Flusher]
) -> None:
    ours = flusher()
    first, second = ours.begin(slices[:1]), ours.begin(slices[1:])
    first._spark = lambda: InProcess(happens=second.run)
    assert first.run().ticks == 10
    assert maker.keys() == sorted(maker.expected_keys(range(30)))


def test_what_another_writer_added_before_the_flush_beside_this_one_committed_is_noticed(
    maker: Any, slices: list[Slice], flusher: Callable[[], Flusher]
) -> None:
    """The flush beside moves the ledger on past a stranger's commit of the very ticks that this one indexes."""
    ours, stranger = flusher(), flusher()
    strangers = iter([lambda: (stranger.flush(slices[:1]), ours.flush(slices[1:]))])
    late = ours.begin(slices[:1])
    late._spark = lambda: InProcess(happens=next(strangers, lambda: None))
    assert late.run().ticks_present == 10
    assert maker.keys() == sorted(maker.expected_keys(range(30)))
    assert len(list(maker.folder(TABLE.name).glob("*.parquet"))) == 4
