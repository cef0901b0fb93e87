"""Errors of completeness."""

from __future__ import annotations

from ticklake.errors import TickLakeError


class RunNeverAnnounced(TickLakeError):
    message = (
        "No database that was given has run {run_id!r}, so nobody would read what is published there. Give the "
        "database of the run, or add --create to create the run in the first of them (if its own database was lost)."
    )
    run_id: str
