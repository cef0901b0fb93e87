"""Checks that the table in a run's folder belongs to that run."""

from __future__ import annotations

from ticklake.lake.delta import DeltaError, Location, TableNotFoundError, one_line, open_of_run
from ticklake.lake.errors import TableUnreadable


def check_owner(location: Location, run_id: str) -> None:
    """Raises `TableOfAnotherRun` if the table belongs to another run. A missing table is accepted."""
    try:
        open_of_run(location, run_id)
    except TableNotFoundError:
        return
    except (DeltaError, OSError) as error:
        raise TableUnreadable(table=location, reason=one_line(error)) from error
