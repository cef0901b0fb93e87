"""The Spark session: local or on a cluster, and what goes wrong with it."""

from __future__ import annotations

from ticklake.lake.session.session import (
    job_died,
    leave_if_gone,
    open_session,
    parallelism,
    reason_of,
    share_cores_fairly,
    ship_with_jobs,
    stop_session,
)

__all__ = [
    "job_died",
    "leave_if_gone",
    "open_session",
    "parallelism",
    "reason_of",
    "share_cores_fairly",
    "ship_with_jobs",
    "stop_session",
]
