"""Indexing against what it could be: Spark's own Parquet writer, and a plain script with neither Spark nor commit.

All three read the same batch files and write the same rows. Run in one process after another, warm, best of a few.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from bench.results import Figure, Section

from ticklake.contracts import EnvironmentConfig, SimulationMetadata
from ticklake.indexers.base import IndexerResources
from ticklake.indexers.environment import SCHEMA, EnvironmentIndexer
from ticklake.indexers.finished import FinishedRun
from ticklake.lake import task
from ticklake.lake.lake import Lake
from ticklake.lake.slices import Piece, Slice
from ticklake.lake.spark import open_session
from ticklake.simulation import Ecosystem, SimulationSettings
from ticklake.storage.codec import CellColumns, OrganismColumns, TickColumns, encode_ticks, read_ticks
from ticklake.storage.files import BatchFile, Storage
from ticklake.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUN_ID = "20251014-143025-550e8400"
CORES = 2


def measure(directory: Path, cells: int = 10_000_000, rounds: int = 3) -> Section:
    storage, total = produce(directory, cells)
    world = World.of(storage.read_metadata(RUN_ID))
    files = storage.batches(RUN_ID, limit=10_000).files
    spark = open_session(f"local[{CORES}]")
    contenders: dict[str, Callable[[], object]] = {
        "ticklake": lambda: index(storage, directory / "lake", spark),
        "Spark's Parquet writer": lambda: spark_parquet(storage, files, world, directory / "parquet", spark),
        "two plain processes": lambda: plain(storage, files, world, directory / "plain"),
    }
    rates: dict[str, float] = dict.fromkeys(contenders, 0.0)
    for _ in range(rounds):
        for name, contender in contenders.items():
            for folder in ("lake", "parquet", "plain"):
                shutil.rmtree(directory / folder, ignore_errors=True)
            rates[name] = max(rates[name], total / timed(contender))
    spark.stop()
    ours, theirs, script = rates.values()
    memory = task_memory(directory)
    return Section(
        "Indexing",
        f"{total:,} cells in {len(files)} batch files into `environment_data`, flushes of 200 ticks and more than two"
        f" million cells, {CORES} cores, best of {rounds}.",
        [
            Figure("TickLake: topic-less indexing, Delta commit, fsync", ours, "cells/s"),
            Figure('the same decode through `df.write.format("parquet")`', theirs, "cells/s"),
            Figure("two plain Python processes, no Spark, no commit", script, "cells/s"),
            Figure("TickLake ÷ Spark's writer", ours / theirs, "times", at_least=3.0),
            Figure("TickLake ÷ plain script", ours / script, "times", at_least=0.75),
            Figure("peak memory of a task on a 2 GiB batch file", memory, "MiB", at_most=512),
        ],
    )


def timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def produce(directory: Path, cells: int) -> tuple[Storage, int]:
    """A run of the simulation that comes with TickLake, about so many cells long."""
    storage = Storage(directory / "storage")
    world = Ecosystem(SimulationSettings(shape=(128, 128), seed=7))
    storage.write_metadata(world.metadata(RUN_ID, 0))
    total, batch = 0, []
    while total < cells:
        batch.append(world.columns(0))
        total += len(batch[-1].cells)
        world.step()
        if len(batch) == 50 or total >= cells:
            storage.write_batch(RUN_ID, encode_ticks(RUN_ID, batch))
            batch = []
    return storage, total


def index(storage: Storage, lake: Path, spark: SparkSession) -> None:
    run = FinishedRun(
        IndexerResources(storage, Lake(lake), spark=lambda: spark), RUN_ID, [EnvironmentIndexer], insert_batch_size=200
    )
    run.start()
    while not run.wait(60):
        pass


def spark_parquet(storage: Storage, files: list[BatchFile], world: World, target: Path, spark: SparkSession) -> None:
    def decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for ticks in read_ticks(
                    storage, files[number], ticks=None, fields=EnvironmentIndexer.reads, world=world
                ):
                    yield EnvironmentIndexer.rows(ticks, world)

    columns = ", ".join(f"{name} {'long' if name == 'tick_number' else 'int'}" for name in SCHEMA.names)
    rows = spark.range(0, len(files), 1, len(files)).mapInArrow(decode, columns)
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
        directory=str(target),
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


def varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def index_one(directory: Path, key: str) -> None:
    storage = Storage(directory / "large", compress=False)
    (directory / "large-table").mkdir(exist_ok=True)
    share = (storage, [storage.batch(key)], World.of(storage.read_metadata(RUN_ID)), directory / "large-table", 0)
    plain_share(share)
    os.write(1, str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024).encode())


if __name__ == "__main__":
    index_one(Path(sys.argv[1]), sys.argv[2])
