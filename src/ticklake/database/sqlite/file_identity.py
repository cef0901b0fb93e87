"""Detects that the files of an open SQLite database were moved. SQLite would keep writing to the moved files."""

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
    """The used part of apsw's connection."""

    @property
    def filename(self) -> str: ...

    def pragma(self, name: str, /) -> Any: ...

    def file_control(self, database: str, operation: int, pointer: int, /) -> bool: ...


class Place(NamedTuple):
    """The three files of a database in WAL mode. A connection that has read nothing may have opened only the first."""

    paths: tuple[str, ...]
    found: tuple[Identity, ...]

    @classmethod
    def of(cls, path: Path, connection: Connection, before: Place | None) -> Place:
        """Returns the open files. Raises `DatabaseMoved` if their names lead to other files, or if they differ from
        `before`: the files of an earlier connection, or of this one before it had opened all three.
        """
        connection.pragma("user_version")  # reading opens the -wal and keeps others from removing it
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
        """Returns only the first file. The other two come and go while the connection has not opened them."""
        return Place(self.paths, (self.found[0], None, None))

    def lost(self) -> str | None:
        """Returns a file that is gone or was replaced; None if there is none. Costs three `stat` calls."""
        for path, found in zip(self.paths, self.found, strict=True):
            if found is not None and identity(path) != found:
                return path
        return None


def identity(path: str) -> Identity:
    """Returns the identity of the file at a path; None if there is no file."""
    try:
        found = os.stat(path)  # noqa: PTH116  at every commit
    except OSError:
        return None
    return (found.st_dev, found.st_ino)


def has_moved(connection: Connection) -> bool:
    """Returns whether the name under which SQLite opened the file now leads to another file or to none."""
    moved = ctypes.c_int()
    connection.file_control("main", SQLITE_FCNTL_HAS_MOVED, ctypes.addressof(moved))
    return bool(moved)


def make_directory(directory: Path) -> None:
    """Creates a directory durably, so that a durable file cannot vanish with its directory."""
    try:
        disk.make_directory(directory)
    except OSError as error:
        raise DatabaseUnusable(database=directory, reason=error.strerror) from error
