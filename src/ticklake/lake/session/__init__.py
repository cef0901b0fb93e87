"""The Spark session, local or on a cluster, and its failures."""

from __future__ import annotations

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
    "close_if_dead",
    "job_died",
    "open_session",
    "parallelism",
    "reason_of",
    "share_cores_fairly",
    "ship_with_jobs",
    "stop_session",
]
