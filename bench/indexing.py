"""Indexing against what it could be: Spark's own writers, and a plain script with neither Spark nor commit.

All of them read the same batch files and write the same rows.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from bench.delta import APPENDED_FILES, MERGED_FILES, decoded
from bench.delta import rates as rates_of_delta
from bench.processes import own_peak, processor_seconds
from bench.results import Figure, Section
from bench.runs import RUN_ID, produce
from deltalake import DeltaTable

from ticklake.contracts import BatchInfo, EnvironmentConfig, SimulationMetadata
from ticklake.indexers.base import IndexerOptions, IndexerResources
from ticklake.indexers.batch import BatchIndexer
from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.indexers.builtin.metadata import MetadataIndexer
from ticklake.indexers.finished_run import FinishedRun
from ticklake.lake.delta import Location
from ticklake.lake.flush import task
from ticklake.lake.flush.job import warm_up
from ticklake.lake.lake import Lake
from ticklake.lake.session.session import open_session
from ticklake.lake.slices import Piece, Slice
from ticklake.storage.codec import CellColumns, OrganismColumns, TickColumns, encode_ticks
from ticklake.storage.delimited import varint
from ticklake.storage.files import BatchFile, Storage
from ticklake.topics import Database
from ticklake.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CORES = 2
TABLES = (EnvironmentIndexer,)
GOALS = {"append": 4.0, "MERGE": 10.0}
REAL_RUNS = Path(__file__).parents[2] / "shared" / "data"
PART = 10_000_000


def measure(directory: Path, cells: int = 50_000_000, rounds: int = 2) -> Section:
    storage, total = produce(directory, cells)
    world = World.of(storage.read_metadata(RUN_ID))
    files = list(storage.every_batch(RUN_ID))
    spark = open_session(f"local[{CORES}]")
    warm_up(spark, EnvironmentIndexer.rows)
    contenders: dict[str, Callable[[], object]] = {
        "lake": lambda: index(storage, directory / "lake", spark, RUN_ID),
        "plain": lambda: plain(storage, files, world, directory / "plain"),
    }
    rates: dict[str, float] = dict.fromkeys(contenders, 0.0)
    for _ in range(rounds):
        for folder, contender in contenders.items():
            shutil.rmtree(directory / folder, ignore_errors=True)
            rates[folder] = max(rates[folder], total / timed(contender))
    ours, script = rates.values()
    part = files[: max(1, round(len(files) * PART / total))]
    parquet = timed(lambda: spark_parquet(storage, part, world, directory / "parquet", spark))
    theirs = total * len(part) / len(files) / parquet
    idle, without_task = flow(directory / "flow", spark)
    real = bytes_a_row(directory / "real", spark)
    spark.stop()
    delta = rates_of_delta(storage, directory)
    return Section(
        "Indexing",
        f"{total:,} cells in {len(files)} batch files into `environment_data`, flushes of 1,000 ticks, some 12 M cells,"
        f" {CORES} cores, best of {rounds}. Spark's writers are slow, so they get a part of it: {len(part)} files for"
        f" Parquet, {APPENDED_FILES} for the Delta append, {MERGED_FILES} for MERGE, once, warm. The steady flow is"
        " 600 files of 50,000 cells on a topic, flushes of 80 ticks, about a million cells.",
        [
            Figure("TickLake: topic-less indexing, Delta commit, fsync", ours, "cells/s"),
            Figure("two plain Python processes, no Spark, no commit", script, "cells/s"),
            Figure('the same decode through `df.write.format("parquet")`', theirs, "cells/s"),
            *(Figure(f"the same decode through Delta's {name}", rate, "cells/s") for name, rate in delta.items()),
            Figure("TickLake ÷ plain script", ours / script, "times", at_least=0.85),
            Figure("TickLake ÷ Spark's Parquet writer", ours / theirs, "times", at_least=3.0),
            *(
                Figure(f"TickLake ÷ Delta's {name}", ours / rate, "times", at_least=GOALS[name])
                for name, rate in delta.items()
            ),
            Figure("idle share of the cores at a steady flow of small files", idle, "of the time", at_most=0.1),
            Figure("the same, without a task at work", without_task, "of the time"),
            *(Figure("Parquet of the real runs", one, "bytes a row", at_most=2.3) for one in real),
            Figure("peak memory of a task on a 2 GiB batch file", task_memory(directory), "MiB", at_most=512),
        ],
    )


def timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def index(
    storage: Storage, lake: Path, spark: SparkSession, run_id: str, kinds: Sequence[type[BatchIndexer]] = TABLES
) -> None:
    run = FinishedRun(IndexerResources(storage, Lake(lake), spark=lambda: spark), run_id, kinds)
    run.start()
    while not run.wait(60):
        pass


def flow(directory: Path, spark: SparkSession) -> tuple[float, float]:
    """A steady flow: the share of the cores' time that was idle, and the share without a task at work.

    From the first file taken to the last one acknowledged. Planning a job and committing its files is work as well.
    """
    storage, _ = produce(directory, 30_000_000, ticks_a_file=4)
    with Database(f"sqlite:///{directory / 'database'}") as database:
        resources = IndexerResources(storage, Lake(directory / "lake"), database, spark=lambda: spark)
        MetadataIndexer("metadata-indexer", resources).write(RUN_ID)
        with database.run(RUN_ID).writer("batch-topic") as writer:
            keys = [file.key for file in storage.every_batch(RUN_ID)]
            writer.send_many([BatchInfo(simulation_run_id=RUN_ID, storage_key=key) for key in keys])
        options = IndexerOptions(RUN_ID, insert_batch_size=80, until_caught_up=True)
        indexer = EnvironmentIndexer("environment-indexer", resources, options)
        before = processor_seconds(os.getpid())
        seconds = timed(indexer.run)
        busy = processor_seconds(os.getpid()) - before
    tasks = indexer.monitor.counter("task_ms").value / 1000
    return 1 - busy / CORES / seconds, 1 - tasks / CORES / seconds


def bytes_a_row(lake: Path, spark: SparkSession) -> list[float]:
    """Of each run that the original wrote, where those are at hand."""
    found = []
    for run in sorted(path.parent.name for path in REAL_RUNS.glob("*/EXPECTED.json")):
        index(Storage(REAL_RUNS), lake, spark, run)
        files = pa.table(DeltaTable(lake / run / "environment_data").get_add_actions(flatten=True))
        found.append(pc.sum(files["size_bytes"]).as_py() / pc.sum(files["num_records"]).as_py())
    return found


def spark_parquet(storage: Storage, files: list[BatchFile], world: World, target: Path, spark: SparkSession) -> None:
    rows = decoded(spark, storage, files, world)
    rows.write.format("parquet").option("compression", "zstd").mode("overwrite").save(str(target))


def plain(storage: Storage, files: list[BatchFile], world: World, target: Path) -> None:
    """What a good script would do: decode, sort and write the same Parquet, half of the files a process."""
    target.mkdir()
    with ProcessPoolExecutor(CORES) as processes:
        list(processes.map(plain_share, [(storage, files[n::CORES], world, target, n) for n in range(CORES)]))


def plain_share(share: tuple[Storage, list[BatchFile], World, Path, int]) -> None:
    storage, files, world, target, number = share
    work = task.Work(
        flush_id="plain",
        storage=storage,
        world=world,
        reads=EnvironmentIndexer.reads,
        table=EnvironmentIndexer.table,
        location=Location.of(target),
        rows=EnvironmentIndexer.rows,
    )
    task.index(work, number, [Piece(place, Slice(file, file.ticks)) for place, file in enumerate(files)])


def task_memory(directory: Path) -> float:
    """The peak of a process that indexes one batch file of 2 GiB, in MiB."""
    storage = Storage(directory / "large", compress=False)
    file = large_file(storage, 2 << 30)
    command = [sys.executable, "-m", "bench.indexing", str(directory), file.key]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def large_file(storage: Storage, size: int) -> BatchFile:
    """A batch file of about `size` bytes, written through the file system: no producer makes one in one go."""
    shape = (1000, 1000)
    environment = EnvironmentConfig(dimensions=2, shape=shape, toroidal=[True, True])
    storage.write_metadata(SimulationMetadata(simulation_run_id=RUN_ID, environment=environment, sampling_interval=1))
    cells = CellColumns(
        flat_index=np.random.default_rng(1).permutation(1_000_000)[:200_000].astype(np.int32),
        molecule_type=np.full(200_000, 1 << 16, np.int32),
        molecule_value=np.arange(200_000, dtype=np.int32) % 1000,
        owner_id=np.zeros(200_000, np.int32),
    )
    part = Path(storage.url) / RUN_ID / "part"
    written = number = 0
    with part.open("wb") as target:
        while written < size:
            (tick,) = encode_ticks(RUN_ID, [TickColumns(number, 0, cells, OrganismColumns())])
            written += target.write(varint(len(tick.data)) + tick.data)
            number += 1
    part.rename(part.with_name(f"batch_{0:010d}_{number - 1:010d}.pb"))
    return storage.batches(RUN_ID).files[0]


def index_one(directory: Path, key: str) -> None:
    storage = Storage(directory / "large", compress=False)
    (directory / "large-table").mkdir(exist_ok=True)
    share = (storage, [storage.batch(key)], World.of(storage.read_metadata(RUN_ID)), directory / "large-table", 0)
    plain_share(share)
    os.write(1, str(own_peak() / 2**20).encode())


if __name__ == "__main__":
    index_one(Path(sys.argv[1]), sys.argv[2])
