"""From batch files to rows: one Spark job writes the Parquet files, one commit adds them to the table."""

from __future__ import annotations

from ticklake.lake.flush.estimate import rows_a_tick
from ticklake.lake.flush.flush import Flush, Flushed, Flusher
from ticklake.lake.flush.job import run_job, warm_up
from ticklake.lake.flush.rendezvous import Sharing
from ticklake.lake.flush.task import Work, decoded_slice, failure_text

__all__ = [
    "Flush",
    "Flushed",
    "Flusher",
    "Sharing",
    "Work",
    "decoded_slice",
    "failure_text",
    "rows_a_tick",
    "run_job",
    "warm_up",
]
