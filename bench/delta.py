"""Spark with the Delta jar, fed from the same decode: `python -m bench.delta STORAGE TARGET` in a JVM of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from bench.runs import RUN_ID

from ticklake.indexers.builtin.environment import SCHEMA, EnvironmentIndexer
from ticklake.storage.codec import read_ticks
from ticklake.storage.files import BatchFile, Storage
from ticklake.world import World

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ", ".join(f"{name} {'long' if name == 'tick_number' else 'int'}" for name in SCHEMA.names)
APPENDED_FILES = 10
MERGED_FILES = 2
_MERGE = (
    "MERGE INTO delta.`{target}` t USING fresh f ON t.tick_number = f.tick_number AND t.cell_id = f.cell_id"
    " WHEN NOT MATCHED THEN INSERT *"
)


def rates(storage: Storage, directory: Path) -> dict[str, float]:
    """Rows a second of an append and of a MERGE, or nothing where the jar cannot be had."""
    command = [sys.executable, "-m", "bench.delta", storage.url, str(directory / "delta")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"no figures for Delta's own writers: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return {}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def decoded(spark: SparkSession, storage: Storage, files: list[BatchFile], world: World) -> DataFrame:
    def decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for ticks in read_ticks(storage, files[number], fields=EnvironmentIndexer.reads, world=world):
                    yield EnvironmentIndexer.rows(ticks, world)

    return spark.range(0, len(files), 1, len(files)).mapInArrow(decode, COLUMNS)


def session() -> SparkSession:
    from delta import configure_spark_with_delta_pip
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "3g",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    builder = SparkSession.builder.master("local[2]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return configure_spark_with_delta_pip(builder).getOrCreate()


def main(url: str, target: str) -> None:
    storage = Storage(url)
    world = World.of(storage.read_metadata(RUN_ID))
    files = storage.batches(RUN_ID, limit=1 + APPENDED_FILES + MERGED_FILES).files
    spark = session()
    # The first write pays for starting; it is not counted.
    decoded(spark, storage, files[:1], world).write.format("delta").save(target)
    appended = files[1 : 1 + APPENDED_FILES]
    started = time.perf_counter()
    decoded(spark, storage, appended, world).write.format("delta").mode("append").save(target)
    append = time.perf_counter() - started
    there = spark.read.format("delta").load(target).count()
    before = spark.read.format("delta").load(target).where(f"tick_number <= {files[0].ticks.end}").count()
    decoded(spark, storage, files[1 + APPENDED_FILES :], world).createOrReplaceTempView("fresh")
    started = time.perf_counter()
    spark.sql(_MERGE.format(target=target))
    merge = time.perf_counter() - started
    merged = spark.read.format("delta").load(target).count() - there
    print(json.dumps({"append": (there - before) / append, "MERGE": merged / merge}))


if __name__ == "__main__":
    main(*sys.argv[1:])
