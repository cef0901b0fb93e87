"""Whether an open SQLite database still is where it was opened: a file that is moved away keeps taking writes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from ticklake.errors import DatabaseUnusable

Identity = tuple[int, int] | None


class Place(NamedTuple):
    """The three files of a database in WAL mode. A connection that has read nothing may have only the first."""

    paths: tuple[str, ...]
    found: tuple[Identity, ...]

    @classmethod
    def of(cls, path: Path) -> Place:
        real = os.path.realpath(path)  # SQLite follows links
        paths = (str(path), f"{real}-wal", f"{real}-shm")
        return cls(paths, tuple(map(identity, paths)))

    @property
    def complete(self) -> bool:
        return None not in self.found

    def reopened(self) -> Place:
        """Of a connection that is made anew: the other two files may have come and gone meanwhile."""
        return Place(self.paths, (self.found[0], None, None))

    def completed(self) -> Place:
        """With the files that were made since."""
        return Place(self.paths, tuple(known or identity(path) for path, known in zip(*self, strict=True)))

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


def make_directory(directory: Path) -> None:
    """Made durably: a file that was accepted must not vanish with its folder, whoever made that a moment ago."""
    missing = [folder for folder in directory.parents if not folder.exists()]
    try:
        for folder in (*reversed(missing), directory):
            folder.mkdir(exist_ok=True)
            handle = os.open(folder.parent, os.O_RDONLY)
            os.fsync(handle)
            os.close(handle)
    except OSError as error:
        raise DatabaseUnusable(database=directory, reason=error.strerror) from error
