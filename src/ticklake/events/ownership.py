"""Ensures that one process at a time uses a queue: a lock on a file, which ends with the process."""

from __future__ import annotations

from io import FileIO
from pathlib import Path

from ticklake.database.errors import DatabaseUnusable
from ticklake.database.fork import Fork, Inheritable
from ticklake.database.sqlite import make_directory
from ticklake.disk import try_lock
from ticklake.events.errors import QueueInUse


class Ownership(Inheritable):
    """The lock of a queue. After `acquire`, all claimed batches are left over from processes that have ended."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._file: FileIO | None = None

    def acquire(self) -> None:
        """Raises `QueueInUse` if the queue is already open."""
        make_directory(self._path.parent)
        try:
            self._file = FileIO(f"{self._path}-lock", "a+")
            free = try_lock(self._file)
        except OSError as error:
            self.release()
            raise DatabaseUnusable(database=self._path, reason=error.strerror) from error
        if not free:
            self.release()
            raise QueueInUse(queue=self._path)

    def release(self) -> None:
        """Releases the lock. Can be repeated."""
        if self._file is not None:
            self._file.close()

    def _disown(self, fork: Fork) -> None:  # noqa: ARG002
        """Closes the inherited file, because the lock lasts until every process has closed it."""
        self.release()
