"""Makes batch files (`format("ticks")`) and tables readable in your own Spark session."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING

from ticklake.lake.read import Catalog, create_views, register_ticks, with_delta

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register", "with_delta"]


def register(spark: SparkSession, lake: str | PathLike[str] | None = None, run: str | None = None) -> None:
    """Makes `spark.read.format("ticks").load("STORAGE/RUN")` work in this session.

    With a lake, the tables of `run` (default: the newest run) become views of the same names, for `spark.sql`. The
    views need a session with Delta; `with_delta` prepares its builder.
    """
    register_ticks(spark)
    if lake is not None:
        catalog = Catalog(str(lake))
        create_views(spark, catalog, catalog.chosen(run)[-1:])
