"""Checks that the table in a run's folder belongs to that run."""

from __future__ import annotations

from pathlib import Path

from ticklake.lake.delta import DeltaError, TableNotFoundError, lacks_log, open_of_run, unreadable


def check_owner(directory: Path, run_id: str) -> None:
    """Raises if the table belongs to another run, or has lost its log. A missing table is accepted."""
    try:
        open_of_run(directory, run_id)
    except TableNotFoundError as error:
        if lacks_log(directory):
            raise unreadable(directory, error) from error
    except (DeltaError, OSError) as error:
        raise unreadable(directory, error) from error
