"""A task takes each piece whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.lake.delta import Location
from ticklake.lake.delta.parquet import ParquetFile
from ticklake.lake.flush import task
from ticklake.lake.flush.task import Failed, Indexed, Work
from ticklake.lake.slices import Piece, Slice
from ticklake.world import World


def rows(ticks: pa.RecordBatch, world: World | None) -> pa.RecordBatch:
    if 15 in ticks.column("tick_number").to_pylist():
        raise ValueError("no rows of tick 15")
    return EnvironmentIndexer.rows(ticks, world)


def test_a_large_piece_that_fails_late_leaves_nothing_and_the_others_their_place(
    maker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large is what is not held whole before any of it is written."""
    monkeypatch.setattr(task, "_WHOLE_BYTES", 1000)
    monkeypatch.setattr(task, "_CHUNK_BYTES", 1)
    maker.metadata()
    files = [maker.storage.batch(batch.storage_key) for batch in maker.batches(3, 10)]
    work = Work(
        flush_id="flush",
        storage=maker.storage,
        world=World.of(maker.storage.read_metadata(maker.run_id)),
        reads=EnvironmentIndexer.reads,
        table=EnvironmentIndexer.table,
        location=Location.of(tmp_path),
        rows=rows,
    )
    results = task.index(work, 0, [Piece(number, Slice(file, file.ticks)) for number, file in enumerate(files)])
    assert [type(result) for result in results] == [Indexed, Failed, Indexed, ParquetFile, ParquetFile]
    written = {result.path for result in results if isinstance(result, ParquetFile)}
    assert {path.name for path in tmp_path.glob("*.parquet")} == written
