"""Checks that the table in a run's folder belongs to that run."""

from __future__ import annotations

from pathlib import Path

from ticklake.lake.delta import DeltaError, TableNotFoundError, one_line, open_of_run
from ticklake.lake.errors import TableUnreadable


def check_owner(directory: Path, run_id: str) -> None:
    """Raises `TableOfAnotherRun` if the table belongs to another run. A missing table is accepted."""
    try:
        open_of_run(directory, run_id)
    except TableNotFoundError:
        return
    except (DeltaError, OSError) as error:
        raise TableUnreadable(table=directory, reason=one_line(error)) from error
