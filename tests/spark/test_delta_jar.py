"""Spark with the Delta jar reads what was committed without it, history included."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ticklake.indexers.batch import BatchIndexer
from ticklake.indexers.environment import EnvironmentIndexer

pytestmark = [pytest.mark.delta_jar, pytest.mark.slow]

# A process of its own: the jar must be on the class path before the JVM starts.
READ = """
import sys
from delta import configure_spark_with_delta_pip
from pyspark.sql import SparkSession
builder = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    .config("spark.databricks.delta.snapshotPartitions", "2")
)
spark = configure_spark_with_delta_pip(builder).getOrCreate()
rows = spark.read.format("delta").load(sys.argv[1])
history = spark.sql(f"DESCRIBE HISTORY delta.`{sys.argv[1]}`").first()
print("FOUND", rows.count(), rows.selectExpr("sum(cell_id)").first()[0], history["operation"])
"""


def test_spark_with_the_delta_jar_reads_the_tables(maker: Any, index_topic: Callable[..., BatchIndexer]) -> None:
    maker.metadata()
    maker.publish(*maker.batches(2))
    index_topic(EnvironmentIndexer)
    directory: Path = maker.lake.directory(maker.run_id, "environment_data")
    done = subprocess.run(
        [sys.executable, "-c", READ, str(directory)], capture_output=True, text=True, timeout=280, check=False
    )
    total = sum(cell for _, cell in maker.expected_keys(range(200)))
    assert f"FOUND 2000 {total} WRITE" in done.stdout, done.stderr[-2000:]
