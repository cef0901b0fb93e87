"""SQLite files that a forked process must not open, because of what its ancestors were doing at the fork."""

from __future__ import annotations

import os
from pathlib import Path

from ticklake.database.errors import DatabaseInUseAtFork
from ticklake.database.sqlite.file_identity import Identity, Place, identity

_files: set[Identity] = set()
_all: list[Path] = []


def bar(path: Path, place: Place | None) -> None:
    """Its name may lead to another file by now."""
    _files.update({identity(str(path)), place and place.found[0]} - {None})


def bar_all(path: Path) -> None:
    """Another thread was at work in `path`: it may have held a mutex of SQLite that no thread here will release."""
    _all.append(path)


def check(path: Path) -> None:
    if _all or identity(str(path)) in _files:
        raise DatabaseInUseAtFork(database=path, used=_all[0] if _all else path, child=os.getpid())
