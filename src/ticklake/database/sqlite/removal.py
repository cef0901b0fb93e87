"""Removes the files of a database."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ticklake import faults
from ticklake.database.errors import DatabaseDamaged, DatabaseUnusable
from ticklake.disk import sync


def remove_database(path: Path, run_id: str, runs_of: Callable[[Path], list[str]]) -> bool:
    """Removes a database and what SQLite and the readers keep beside it, durably. Returns whether there was one.

    The file of another run is refused.
    """
    with suppress(DatabaseDamaged):  # a damaged file can be removed too
        for found in runs_of(path) if path.exists() else []:
            if found != run_id:
                raise DatabaseUnusable(database=path, reason=f"it belongs to run {found!r}, not to {run_id!r}")
    existed = path.exists()
    # The database itself goes first: without it, the other files mean nothing.
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        with faults.around("database.remove"):
            path.with_name(name).unlink(missing_ok=True)
    shutil.rmtree(path.with_name(f"{path.name}-wake"), ignore_errors=True)
    if path.parent.is_dir():
        sync(path.parent)
    return existed
