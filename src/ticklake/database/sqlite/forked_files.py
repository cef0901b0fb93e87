"""SQLite files that a forked process must not open, because they were in use at the fork."""

from __future__ import annotations

import os
from pathlib import Path

from ticklake.database.errors import DatabaseInUseAtFork
from ticklake.database.sqlite.file_identity import Identity, Place, identity

_files: set[Identity] = set()
_all: list[Path] = []


def forbid(path: Path, place: Place | None) -> None:
    """Forbids a file. It is identified by inode, because its name may lead to another file later."""
    _files.update({identity(str(path)), place and place.found[0]} - {None})


def forbid_all(path: Path) -> None:
    """Forbids all files. A thread was using `path` and may have held a mutex of SQLite that is now never released."""
    _all.append(path)


def check(path: Path) -> None:
    if _all or identity(str(path)) in _files:
        raise DatabaseInUseAtFork(database=path, used=_all[0] if _all else path, child=os.getpid())
