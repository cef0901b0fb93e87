"""One process at a time: a lock beside the file, which the system takes away from a process that dies."""

from __future__ import annotations

import fcntl
from io import FileIO
from pathlib import Path

from ticklake.database.errors import DatabaseUnusable
from ticklake.database.fork import Fork, Inheritable
from ticklake.database.sqlite import make_directory
from ticklake.events.errors import QueueInUse


class Ownership(Inheritable):
    """Who has it knows that nobody else is at work: what was begun before was left by the dead."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._file: FileIO | None = None

    def take(self) -> None:
        make_directory(self._path.parent)
        try:
            self._file = FileIO(f"{self._path}-lock", "a+")
        except OSError as error:
            raise DatabaseUnusable(database=self._path, reason=error.strerror) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.give_back()
            raise QueueInUse(queue=self._path) from error

    def give_back(self) -> None:
        """Can be repeated."""
        if self._file is not None:
            self._file.close()

    def _disown(self, fork: Fork) -> None:  # noqa: ARG002
        """A lock lasts until the last process that inherited it has closed it."""
        self.give_back()
