"""Whether an open SQLite database still is where it was opened: a file that is moved away keeps taking writes."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from ticklake import disk
from ticklake.database.errors import DatabaseMoved, DatabaseUnusable

Identity = tuple[int, int] | None
SQLITE_FCNTL_HAS_MOVED = 20


class Connection(Protocol):
    """What is asked of a connection of apsw."""

    @property
    def filename(self) -> str: ...

    def pragma(self, name: str, /) -> Any: ...

    def file_control(self, database: str, operation: int, pointer: int, /) -> bool: ...


class Place(NamedTuple):
    """The three files of a database in WAL mode. A connection that has read nothing may have only the first."""

    paths: tuple[str, ...]
    found: tuple[Identity, ...]

    @classmethod
    def of(cls, path: Path, connection: Connection, before: Place | None) -> Place:
        """The files that are open. Raises `DatabaseMoved` if others have their names, or if it was another one before.

        `before`: what an earlier connection had, or this one before it had all three.
        """
        connection.pragma("user_version")  # to read opens the -wal, and keeps others from taking it away
        in_wal_mode = connection.pragma("journal_mode") == "wal"
        opened = connection.filename  # SQLite has followed links
        others = (f"{opened}-wal", f"{opened}-shm")
        place = cls((str(path), *others), tuple(map(identity, (opened, *others))))
        same = before is None or before.first() == place.first()
        if not same or has_moved(connection) or (in_wal_mode and not place.complete):
            raise DatabaseMoved(database=path, reason=path)
        return place if in_wal_mode else place.first()

    @property
    def complete(self) -> bool:
        return None not in self.found

    def first(self) -> Place:
        """Without the other two files: they come and go as long as the connection does not have them open."""
        return Place(self.paths, (self.found[0], None, None))

    def lost(self) -> str | None:
        """Which of the files is gone or is another one now; None if all are there. Costs three calls of `stat`."""
        for path, found in zip(self.paths, self.found, strict=True):
            if found is not None and identity(path) != found:
                return path
        return None


def identity(path: str) -> Identity:
    """Which file a path leads to; None if to none."""
    try:
        found = os.stat(path)  # noqa: PTH116  at every commit
    except OSError:
        return None
    return (found.st_dev, found.st_ino)


def has_moved(connection: Connection) -> bool:
    """Whether the name under which SQLite has opened the file leads to another one now, or to none."""
    moved = ctypes.c_int()
    connection.file_control("main", SQLITE_FCNTL_HAS_MOVED, ctypes.addressof(moved))
    return bool(moved)


def make_directory(directory: Path) -> None:
    """Made durably: a file that was accepted must not vanish with its folder, whoever made that a moment ago."""
    try:
        disk.make_directory(directory)
    except OSError as error:
        raise DatabaseUnusable(database=directory, reason=error.strerror) from error
