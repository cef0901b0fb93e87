"""The folder of a table, held open: all actions affect this folder, even if it was moved to another path.

Everything specific to directories is here: descriptors, locks, links. An object store would need its own module.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple, Self

from ticklake import faults
from ticklake.disk import sync, try_lock
from ticklake.lake.delta import checkpoints, commits, history
from ticklake.lake.delta.location import LOG, Location
from ticklake.lake.errors import LakeUnwritable
from ticklake.storage import create_file, replace_file

_logger = logging.getLogger(__name__)

_LOCK = "_ticklake.lock"
# The number of later commits to look for. Listing all names would take longer as the log grows.
_LATER_COMMITS = 8
# Seconds of waiting for a lock before a warning is logged.
_PATIENCE = 10.0
_LOOK_SECONDS = 0.01
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY


class State(NamedTuple):
    """What the file system records about a file. A copy made with `cp` differs in some of it."""

    inode: int
    size: int
    written_ns: int
    changed_ns: int


class TableFolder:
    """A table's folder and its log. Methods take names of files in the log by default."""

    def __init__(self, location: Location) -> None:
        """Raises FileNotFoundError if the table does not exist."""
        self.location = location
        self._table = os.open(str(location), _DIRECTORY)
        try:
            self._log = os.open(LOG, _DIRECTORY, dir_fd=self._table)
        except BaseException:
            os.close(self._table)
            raise

    @classmethod
    def open_or_create(cls, location: Location) -> Self:
        """Opens the folder and makes it if it is missing."""
        location.make_log()
        return cls(location)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._log)
        os.close(self._table)

    def is_here(self) -> bool:
        """Returns True if the path still leads to this folder. Otherwise it was moved."""
        try:
            table, log = Path(str(self.location)).stat(), Path(self.location.log).stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return os.path.samestat(table, os.fstat(self._table)) and os.path.samestat(log, os.fstat(self._log))

    @contextmanager
    def committing(self) -> Iterator[None]:
        """Locks the log for adding to it. Nothing can be removed or set aside meanwhile."""
        with self._locked(shared=True):
            yield

    @contextmanager
    def removing(self) -> Iterator[None]:
        """Locks the log for finding and removing files. Nothing can be committed meanwhile."""
        with self._locked(shared=False):
            yield

    def names(self) -> list[str]:
        return sorted(os.listdir(self._log))  # noqa: PTH208  a descriptor

    def versions(self) -> list[int]:
        """Returns the versions whose commits exist, ascending."""
        return [commits.version_of(name) for name in self.names() if commits.is_commit(name)]

    def newest_checkpoint(self) -> int:
        """Returns the version of the newest checkpoint, or -1."""
        return max(checkpoints.whole(self.names()).values(), default=-1)

    def read(self, name: str) -> bytes | None:
        """Returns the bytes of a file of the log, or None if it does not exist."""
        try:
            with os.fdopen(os.open(name, os.O_RDONLY, dir_fd=self._log), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def has_any_after(self, version: int) -> bool:
        """Returns True if one of the next few commits exists. Then the commit of this version must exist too."""
        return any(self._exists(commits.name_of(version + number)) for number in range(1, _LATER_COMMITS + 1))

    def is_empty(self, name: str) -> bool:
        """Returns True if the file exists and is empty."""
        try:
            return not os.stat(name, dir_fd=self._log).st_size
        except FileNotFoundError:
            return False

    def state(self, name: str) -> State | None:
        """Returns a value that changes with every write to the file, or None if it does not exist."""
        try:
            found = os.stat(name, dir_fd=self._log)
        except FileNotFoundError:
            return None
        return State(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)

    def states(self, after: int) -> dict[str, State | None]:
        """Returns the states of all commits after a version."""
        names = [commits.name_of(version) for version in self.versions() if version > after]
        return {name: self.state(name) for name in names}

    def identity(self) -> tuple[int, int]:
        """Returns device and inode, which differ for another folder in the same place."""
        found = os.fstat(self._log)
        return found.st_dev, found.st_ino

    def digest(self, version: int) -> str | None:
        """Returns the digest of a commit, or of its checkpoint if the commit was cleaned up; None if both are gone."""
        data = self.read(commits.name_of(version))
        if data is None:
            found = checkpoints.versions_of(self.names())
            parts = [self.read(name) or b"" for name, covered in found.items() if covered == version]
            data = b"".join(part for part in parts if part)
        return history.digest_of(data) if data else None

    def create(self, name: str, data: bytes) -> None:
        """Creates a file, atomically and durably. Raises FileExistsError if the name is used."""
        create_file(self._log, name, data)

    def replace(self, name: str, data: bytes) -> None:
        """Creates or replaces a file, atomically and durably."""
        replace_file(self._log, name, data)

    def set_aside(self, name: str) -> None:
        """Renames a file to `.torn`, durably, so that it can still be examined."""
        taken = set(self.names())
        free = (f"{name}{count}.torn" for count in ("", *(f".{number}" for number in range(2, len(taken) + 3))))
        aside = next(one for one in free if one not in taken)
        with faults.around("lake.set_aside"):
            os.rename(name, aside, src_dir_fd=self._log, dst_dir_fd=self._log)
        os.fsync(self._log)

    def require(self, files: Iterable[str]) -> None:
        """Raises FileNotFoundError if one of these data files is not in this folder."""
        for file in files:
            os.stat(file, dir_fd=self._table)

    def remove(self, path: str) -> None:
        """Removes a file that is not part of a commit. The path is relative to the table's folder."""
        with faults.around("lake.remove"):
            try:
                os.unlink(path, dir_fd=self._table)
            except FileNotFoundError:
                return

    def remove_log_file(self, name: str) -> None:
        self.remove(f"{LOG}/{name}")

    def sync(self, names: Iterable[str]) -> None:
        """Makes these files of the log durable, and the names of all files."""
        for name in names:
            with suppress(FileNotFoundError):
                sync(name, within=self._log)
        os.fsync(self._log)
        os.fsync(self._table)

    def _exists(self, name: str) -> bool:
        return os.access(name, os.F_OK, dir_fd=self._log)

    @contextmanager
    def _locked(self, *, shared: bool) -> Iterator[None]:
        # Closing the file releases the lock, as does the end of the process.
        while True:
            with os.fdopen(self._open_lock(), "rb") as file:
                self._wait_for(file, shared)
                # If the file was deleted meanwhile, other processes cannot see this lock.
                if self._is_lock(file):
                    yield
                    return

    def _open_lock(self) -> int:
        """Opens read-only if another user made the file. That is enough for a lock on local file systems."""
        try:
            with suppress(FileNotFoundError):
                try:
                    return os.open(_LOCK, os.O_RDWR, dir_fd=self._log)
                except PermissionError:
                    return os.open(_LOCK, os.O_RDONLY, dir_fd=self._log)
            return self._make_lock()
        except OSError as error:
            raise LakeUnwritable(directory=str(self.location.log_file(_LOCK)), reason=error) from error

    def _make_lock(self) -> int:
        """Makes the file with the owner of the log, even if root makes it."""
        made = os.open(_LOCK, os.O_RDWR | os.O_CREAT, 0o666, dir_fd=self._log)
        owner = os.fstat(self._log)
        with suppress(PermissionError):
            os.fchown(made, owner.st_uid, owner.st_gid)
        return made

    def _is_lock(self, file: IO[bytes]) -> bool:
        try:
            return os.path.samestat(os.fstat(file.fileno()), os.stat(_LOCK, dir_fd=self._log))
        except FileNotFoundError:
            return False

    def _wait_for(self, file: IO[bytes], shared: bool) -> None:
        """Waits for the lock. Logs a warning after some seconds, because the process that holds it may hang."""
        warn_at = time.monotonic() + _PATIENCE
        while True:
            if try_lock(file, shared=shared):
                return
            if time.monotonic() >= warn_at:
                _logger.warning(
                    "Still waiting for the lock %s: another process holds it", self.location.log_file(_LOCK)
                )
                warn_at = time.monotonic() + 60.0
            time.sleep(_LOOK_SECONDS)
