"""The Spark job of a flush: sends pieces to tasks and collects the results."""

from __future__ import annotations

import gc
import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from ticklake.lake.errors import FlushFailed, SparkUnavailable, WorkersNotReady
from ticklake.lake.flush import task
from ticklake.lake.flush.task import Result, Rows, Spent, Work
from ticklake.lake.session import close_if_dead, job_died, parallelism, reason_of, share_cores_fairly
from ticklake.lake.slices import Piece, spread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_Result = TypeVar("_Result")
Jobs = Callable[["SparkSession", Work, Sequence[Piece], int], list[Result]]
"""Runs the pieces of a flush, in their own job or in one shared with other tables."""


def warm_up(spark: SparkSession, *needed: Rows) -> None:
    """Starts a Python worker on every core and loads what `needed` needs, so that the first flush is not slow."""
    try:
        run_tasks(spark, "no table", parallelism(spark), lambda _: [len(needed)])
    except FlushFailed as error:
        raise WorkersNotReady(reason=error.reason) from error


def run_empty_job(spark: SparkSession) -> None:
    """Runs an empty task on every core. Raises `SparkUnavailable` if one fails."""
    try:
        run_tasks(spark, "no table", parallelism(spark), lambda _: [None])
    except FlushFailed as error:
        raise SparkUnavailable(reason=error.reason) from error


def run_job(spark: SparkSession, work: Work, pieces: Sequence[Piece], step: int) -> list[Result]:
    """Runs the pieces of one flush in equal shares, with one task for each core."""
    shares = [
        [pieces[share.number]._replace(slice=share.slice) for share in dealt]
        for dealt in spread([piece.slice for piece in pieces], parallelism(spark), step)
    ]

    def act(number: int) -> list[Result]:
        started = time.perf_counter()
        results = task.index(work, number, shares[number])
        return [*results, Spent(time.perf_counter() - started)]

    return run_tasks(spark, work.name, len(shares), act)


def run_tasks(spark: SparkSession, name: str, count: int, act: Callable[[int], list[_Result]]) -> list[_Result]:
    """Runs `act` in one task for each number. Inputs travel in the closure and results come back as rows."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield pa.RecordBatch.from_pydict({"result": [pickle.dumps(result) for result in act(number)]})
        _freeze_garbage()

    try:
        share_cores_fairly(spark, name)
        rows = spark.range(0, count, 1, count).mapInArrow(run, "result binary").collect()
    except Exception as error:
        if job_died(error):
            raise FlushFailed(table=name, reason=reason_of(error)) from error
        close_if_dead(spark)
        raise SparkUnavailable(reason=reason_of(error)) from error
    # Safe: our own tasks have just made these bytes.
    return [pickle.loads(bytes(row["result"])) for row in rows]  # noqa: S301


@cache
def _freeze_garbage() -> None:
    """Excludes loaded modules from garbage collection, once in a worker. PySpark collects after every task: 50 ms."""
    gc.collect()
    gc.freeze()
