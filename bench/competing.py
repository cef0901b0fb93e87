"""Four indexers in one consumer group against one alone, each a process with a Spark of its own, on the same cores."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median

from bench.results import Figure, Section
from bench.runs import RUN_ID, produce
from deltalake import DeltaTable

from ticklake.contracts import BatchInfo
from ticklake.indexers.base import IndexerOptions, IndexerResources
from ticklake.indexers.batches import StoredBatches
from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.indexers.builtin.metadata import MetadataIndexer
from ticklake.lake.lake import Lake
from ticklake.lake.session.session import open_session
from ticklake.storage.files import Storage
from ticklake.ticks import TickRange
from ticklake.topics import Database

GROUP = "environment-indexer"
FILE_TICKS, FLUSH_TICKS = 8, 160
# What each indexes elsewhere before the clock starts, in small flushes, until its JVM has compiled what hands out jobs
# and its workers have their memory: they work for weeks, and are measured for seconds.
WARM_UP, WARM_UP_TICKS = TickRange(0, 1199), 40


def measure(directory: Path, cells: int = 120_000_000, crowd: int = 4, rounds: int = 3) -> Section:
    storage, total = produce(directory, cells, ticks_a_file=FILE_TICKS)
    seconds: dict[int, list[float]] = {1: [], crowd: []}
    for size in [*seconds] * rounds:
        seconds[size].append(run_crowd(directory / "crowd", storage, size))
        check(directory / "crowd" / "lake", total)
        shutil.rmtree(directory / "crowd")
    alone, together = map(median, seconds.values())
    return Section(
        "Competing indexers",
        f"{total:,} cells in batch files of eight ticks on one topic; processes of one consumer group, two cores for"
        f" all of them; each has indexed {WARM_UP.count()} ticks elsewhere when the clock starts; flushes of"
        f" {FLUSH_TICKS} ticks, about two million cells. Medians of {rounds} rounds.",
        [
            Figure("one indexer", total / alone, "cells/s"),
            Figure(f"{crowd} indexers in one group", total / together, "cells/s"),
            Figure(
                f"{crowd} together ÷ one alone",
                median(one / many for one, many in zip(*seconds.values(), strict=True)),
                "times",
                at_least=1.0,
            ),
        ],
    )


def run_crowd(directory: Path, storage: Storage, size: int) -> float:
    """Seconds from the start signal until the last of them has caught up."""
    resources = IndexerResources(storage, Lake(directory / "lake"))
    MetadataIndexer("metadata-indexer", resources).write(RUN_ID)
    url = f"sqlite:///{directory / 'database'}"
    with Database(url) as database, database.run(RUN_ID).writer("batch-topic") as writer:
        keys = [file.key for file in storage.every_batch(RUN_ID)]
        writer.send_many([BatchInfo(simulation_run_id=RUN_ID, storage_key=key) for key in keys])
    command = [sys.executable, "-m", "bench.competing", storage.url, str(directory / "lake"), url]
    children = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(size)
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    started = time.perf_counter()
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    heard = [child.stdout.readline() for child in children if child.stdout]
    seconds = time.perf_counter() - started
    if any(child.wait() for child in children) or set(heard) != {"done\n"}:
        raise RuntimeError("an indexer failed")
    return seconds


def check(lake: Path, total: int) -> None:
    rows = DeltaTable(lake / RUN_ID / "environment_data").to_pyarrow_dataset().count_rows()
    if rows != total:
        raise RuntimeError(f"{rows} rows of {total} cells")


def main(storage: str, lake: str, url: str) -> None:
    spark = open_session("local[2]")
    options = IndexerOptions(RUN_ID, insert_batch_size=FLUSH_TICKS, flush_timeout_ms=200, until_caught_up=True)
    with Database(url) as database:
        resources = IndexerResources(Storage(storage), Lake(lake), database, spark=lambda: spark)
        elsewhere = replace(resources, lake=Lake(f"{lake}-{os.getpid()}"))
        warm_up(elsewhere, replace(options, insert_batch_size=WARM_UP_TICKS))
        indexer = EnvironmentIndexer(GROUP, resources, options)
        print("ready", flush=True)
        sys.stdin.readline()
        indexer.run()
        print("done", flush=True)


def warm_up(resources: IndexerResources, options: IndexerOptions) -> None:
    MetadataIndexer("metadata-indexer", resources).write(RUN_ID)
    stored = partial(StoredBatches, resources.storage, ticks=WARM_UP)
    EnvironmentIndexer(GROUP, resources, options, stored).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
