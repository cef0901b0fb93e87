"""From the publication of a batch file until a query sees its rows: a flush timeout of a second, a warm session."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from statistics import quantiles

from bench.results import Figure, Section
from bench.runs import RUN_ID, produce
from deltalake import DeltaTable

from ticklake.contracts import BatchInfo
from ticklake.indexers.base import IndexerOptions, IndexerResources
from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.indexers.builtin.metadata import MetadataIndexer
from ticklake.lake.flush.job import warm_up
from ticklake.lake.lake import Lake
from ticklake.lake.session.session import open_session
from ticklake.storage.files import BatchFile
from ticklake.topics import Database

GAP = 0.4


def measure(directory: Path, batches: int = 100) -> Section:
    storage, _ = produce(directory, batches * 50_000, ticks_a_file=4)
    files = list(storage.every_batch(RUN_ID))[:batches]
    spark = open_session("local[2]")
    warm_up(spark, EnvironmentIndexer.rows)
    with Database(f"sqlite:///{directory / 'database'}") as database:
        resources = IndexerResources(storage, Lake(directory / "lake"), database, spark=lambda: spark)
        MetadataIndexer("metadata-indexer", resources).write(RUN_ID)
        options = IndexerOptions(RUN_ID, flush_timeout_ms=1000)
        with EnvironmentIndexer("environment-indexer", resources, options):
            seconds = visible_after(database, files, Path(str(resources.lake.location(RUN_ID, "environment_data"))))
    spark.stop()
    cuts = quantiles(seconds, n=100)
    return Section(
        "From publication to query",
        f"{len(files)} batch files of four ticks and some 50,000 cells, one every {GAP} s, announced on a SQLite topic;"
        " a reader opens the table again and again and looks for their ticks. The flush timeout is 1 s.",
        [
            Figure("publication to visible, median", cuts[49], "s"),
            Figure("publication to visible, p95", cuts[94], "s", at_most=3.0),
            Figure("publication to visible, p99", cuts[98], "s"),
        ],
    )


def visible_after(database: Database, files: list[BatchFile], table: Path) -> list[float]:
    published: list[float] = []
    seen: list[float] = []
    watcher = threading.Thread(target=watch, args=(table, files, seen), daemon=True)
    with database.run(RUN_ID).writer("batch-topic") as writer:
        # The first one finds the table not yet made and everything cold: it is not counted.
        watcher.start()
        for file in files:
            info = BatchInfo(simulation_run_id=RUN_ID, storage_key=file.key)
            published.append(time.monotonic())
            writer.send(info)
            time.sleep(GAP)
    watcher.join()
    return [after - before for before, after in zip(published, seen, strict=True)][1:]


def watch(table: Path, files: list[BatchFile], seen: list[float]) -> None:
    """Notes when the last tick of each file is there; files come in the order of their ticks."""
    while len(seen) < len(files):
        time.sleep(0.02)
        if not DeltaTable.is_deltatable(str(table)):
            continue
        actions = DeltaTable(table).get_add_actions(flatten=True)
        highest = max(actions["max.tick_number"].to_pylist(), default=-1)
        now = time.monotonic()
        while len(seen) < len(files) and files[len(seen)].ticks.end <= highest:
            seen.append(now)
