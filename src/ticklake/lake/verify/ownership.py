"""Checks that the table in a run's folder belongs to that run."""

from __future__ import annotations

from ticklake.lake.delta import DeltaError, Location, TableNotFoundError, open_of_run, unreadable


def check_owner(location: Location, run_id: str) -> None:
    """Raises if the table belongs to another run, or has lost its log. A missing table is accepted."""
    try:
        open_of_run(location, run_id)
    except TableNotFoundError as error:
        if location.lacks_log():
            raise unreadable(location, error) from error
    except (DeltaError, OSError) as error:
        raise unreadable(location, error) from error
