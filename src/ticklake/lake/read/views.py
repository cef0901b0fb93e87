"""Makes the lake available in a user's own Spark session."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ticklake.lake.delta import DeltaError, open_of_run, unreadable
from ticklake.lake.errors import DeltaMissing
from ticklake.lake.read.catalog import Catalog
from ticklake.lake.session import reason_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # The default is 50 tasks to read a log of a few files, which takes longer than most queries.
    "spark.databricks.delta.snapshotPartitions": str(os.cpu_count() or 2),
}


def register_ticks(spark: SparkSession) -> None:
    from ticklake.lake.read.source import Ticks

    spark.dataSource.register(Ticks)
    # Off by default, but then Spark refuses a source with `pushFilters`.
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def create_views(spark: SparkSession, catalog: Catalog, runs: Iterable[str]) -> None:
    """Creates a temporary view for each table, with the name of the table. Later runs replace earlier ones.

    Raises `TableOfAnotherRun` for a table that belongs to another run.
    """
    for run_id in runs:
        for table in catalog.tables(run_id):
            location = catalog.location(run_id, table).absolute()
            try:
                open_of_run(location, run_id)
            except (DeltaError, OSError) as error:
                raise unreadable(location, error) from error
            try:
                spark.read.format("delta").load(str(location)).createOrReplaceTempView(table)
            except Exception as error:
                raise DeltaMissing(table=location, reason=reason_of(error)) from error


def with_delta(builder: SparkSession.Builder) -> SparkSession.Builder:
    """Returns the builder with the settings for Delta tables. The jar is downloaded from the Maven repository."""
    try:
        from delta import configure_spark_with_delta_pip
    except ImportError as error:
        raise DeltaMissing(table="any", reason=error) from error
    for name, value in _DELTA.items():
        builder = builder.config(name, value)
    configured: SparkSession.Builder = configure_spark_with_delta_pip(builder)
    return configured
