"""SIGKILL at every step of a flush of chunks that overlap, as after a resume: the tables are those of a clean pass."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from tests.crash.original import RUN, Organism, Tick, file_of, metadata
from tests.crash.test_flush import STEPS, Start, kill, restart, start

from ticklake.coordination import publish
from ticklake.indexers.base import IndexerResources
from ticklake.indexers.batch import BatchIndexer
from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.indexers.builtin.metadata import MetadataIndexer
from ticklake.indexers.finished_run import FinishedRun
from ticklake.lake.lake import Lake
from ticklake.topics import Database

__all__ = ["restart", "start"]

pytestmark = [
    pytest.mark.spark,
    pytest.mark.chaos,
    pytest.mark.slow,  # without a kill: `tests/spark/test_newer_runs.py`
    pytest.mark.warns("STUCK_MESSAGE_REASSIGNED"),
]

FILES = [range(100), range(60, 140), range(140, 200)]


def rows_of(table: Path) -> pa.Table:
    rows = DeltaTable(table).to_pyarrow_table()
    return rows.sort_by([("tick_number", "ascending"), ("cell_id", "ascending")])


def write(maker: Any, era: str) -> None:
    maker.run_id = RUN
    folder = Path(maker.storage.url) / RUN / "raw"
    folder.mkdir(parents=True)
    (folder / "metadata.pb").write_bytes(metadata(era))
    for ticks in FILES:
        cells = [{(tick * step) % 100: (1 << 20 | tick, 1) for step in range(1, 9)} for tick in ticks]
        found = [Tick(tick, there, [Organism(1)]) for tick, there in zip(ticks, cells, strict=True)]
        (folder / f"batch_{ticks[0]}_{ticks[-1]}.pb").write_bytes(file_of(era, found, chunk=10))


@pytest.mark.parametrize(("era", "step"), list(zip("DEFGDEF", STEPS, strict=True)))
def test_a_kill_at_this_step_leaves_the_tables_of_a_clean_pass(
    maker: Any,
    spark: Any,
    start: Start,
    restart: Callable[[type[BatchIndexer]], None],
    eventually: Callable[..., None],
    tmp_path: Path,
    era: str,
    step: str,
) -> None:
    write(maker, era)
    clean = FinishedRun(
        IndexerResources(maker.storage, Lake(tmp_path / "clean"), spark=lambda: spark), RUN, [EnvironmentIndexer]
    ).start()
    while not clean.wait(60):
        pass
    with Database(maker.database_url) as database:
        keys = [file.key for file in maker.storage.every_batch(RUN)]
        publish(database.run(RUN), maker.storage, reversed(keys))
    MetadataIndexer("metadata-indexer", IndexerResources(maker.storage, maker.lake)).write(RUN)
    point, committed = STEPS[step]
    mark = tmp_path / "mark"
    # Parts of files, so that several flushes share a chunk.
    victim = start(insert=35 if committed else 500, TICKLAKE_FAULT=f"{point}:hold", TICKLAKE_FAULT_MARK=str(mark))
    eventually(lambda: mark.exists() or victim.poll() is not None)
    assert mark.exists(), "it ended before it came to this step"
    kill(victim)
    restart(EnvironmentIndexer)
    found = rows_of(maker.lake_folder / RUN / "environment_data")
    assert found == rows_of(tmp_path / "clean" / RUN / "environment_data")
    assert sorted(set(found["tick_number"].to_pylist())) == list(range(200))
    commits = DeltaTable(maker.lake_folder / RUN / "environment_data").history()
    assert {one["format"] for commit in commits for one in json.loads(commit.get("ticklake.sources", "[]"))} == {era}
