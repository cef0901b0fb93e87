"""The Spark job of a flush: pieces out to the tasks, an account of each back."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from ticklake.errors import FlushFailed, SparkUnavailable
from ticklake.lake import task
from ticklake.lake.slices import Piece, spread
from ticklake.lake.spark import job_died, leave_if_gone, parallelism, reason_of, share_cores_fairly
from ticklake.lake.task import Result, Spent, Work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_job(spark: SparkSession, work: Work, pieces: Sequence[Piece], step: int) -> list[Result]:
    """One task a core. Pieces travel in the closure and results come back as rows: no shuffle, nothing in the JVM."""
    shares = [
        [Piece(pieces[share.number].number, share.slice) for share in dealt]
        for dealt in spread([piece.slice for piece in pieces], parallelism(spark), step)
    ]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                started = time.perf_counter()
                results = task.index(work, number, shares[number])
                spent = Spent(time.perf_counter() - started)
                yield pa.RecordBatch.from_pydict({"result": [pickle.dumps(result) for result in [*results, spent]]})

    count = len(shares)
    try:
        share_cores_fairly(spark, work.name)
        rows = spark.range(0, count, 1, count).mapInArrow(run, "result binary").collect()
    except Exception as error:
        if job_died(error):
            raise FlushFailed(table=work.name, reason=reason_of(error)) from error
        leave_if_gone(spark)
        raise SparkUnavailable(reason=reason_of(error)) from error
    # What comes back was made by our own tasks a moment ago.
    return [pickle.loads(bytes(row["result"])) for row in rows]  # noqa: S301
