"""Spark with the Delta jar reads what was committed without it, history included."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from ticklake.indexers.batch import BatchIndexer
from ticklake.indexers.builtin.environment import EnvironmentIndexer

pytestmark = [pytest.mark.delta_jar, pytest.mark.slow]

# A process of its own: the jar must be on the class path before the JVM starts.
READ = """
import sys
import ticklake.spark
from pyspark.sql import SparkSession
builder = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
)
spark = ticklake.spark.with_delta(builder).getOrCreate()
ticklake.spark.register(spark, lake=sys.argv[1], run=sys.argv[2])
found = spark.sql("SELECT count(*), sum(cell_id) FROM environment_data").first()
history = spark.sql(f"DESCRIBE HISTORY delta.`{sys.argv[1]}/{sys.argv[2]}/environment_data`").first()
views = sorted(table.name for table in spark.catalog.listTables())
print("FOUND", *found, history["operation"], *views)
"""


def test_spark_with_the_delta_jar_reads_the_tables(maker: Any, index_topic: Callable[..., BatchIndexer]) -> None:
    maker.metadata()
    maker.publish(*maker.batches(2))
    index_topic(EnvironmentIndexer)
    done = subprocess.run(
        [sys.executable, "-c", READ, str(maker.lake.root), maker.run_id],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    total = sum(cell for _, cell in maker.expected_keys(range(200)))
    assert f"FOUND 2000 {total} WRITE environment_data metadata" in done.stdout, done.stderr[-2000:]
