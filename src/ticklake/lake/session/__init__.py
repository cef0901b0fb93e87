"""The Spark session, local or on a cluster, and its failures."""

from __future__ import annotations

from ticklake.lake.session.java import OLDEST, Java, find_java
from ticklake.lake.session.master import needs_java
from ticklake.lake.session.session import (
    close_if_dead,
    job_died,
    open_session,
    parallelism,
    reason_of,
    share_cores_fairly,
    ship_with_jobs,
    stop_session,
)

__all__ = [
    "OLDEST",
    "Java",
    "close_if_dead",
    "find_java",
    "job_died",
    "needs_java",
    "open_session",
    "parallelism",
    "reason_of",
    "share_cores_fairly",
    "ship_with_jobs",
    "stop_session",
]
