"""The folder of a table, held open: what is done here happens to this very folder, whatever its path names by now.

All that is special about directories is here: descriptors, locks, links. An object store would have its own.
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
from ticklake.lake.delta.durable import make_directory
from ticklake.lake.errors import LakeUnwritable
from ticklake.storage import create_file, replace_file

_logger = logging.getLogger(__name__)

LOG = "_delta_log"
_LOCK = "_ticklake.lock"
# A look at every name would take longer the longer the log is.
_NEXT = 8
# Seconds until somebody is told that a lock is not to be had.
_PATIENCE = 10.0
_LOOK_SECONDS = 0.01
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY


class State(NamedTuple):
    """What the file system says of a file. `cp` keeps some of it, but not all."""

    inode: int
    size: int
    written_ns: int
    changed_ns: int


class TableFolder:
    """A table's folder and its log. Names are those of files of the log if nothing else is said."""

    def __init__(self, path: Path) -> None:
        """FileNotFoundError if there is no such table."""
        self.path, self.log = path, path / LOG
        self._table = os.open(path, _DIRECTORY)
        try:
            self._log = os.open(LOG, _DIRECTORY, dir_fd=self._table)
        except BaseException:
            os.close(self._table)
            raise

    @classmethod
    def made(cls, path: Path) -> Self:
        """Makes the folder if it is missing."""
        make_directory(path / LOG)
        return cls(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._log)
        os.close(self._table)

    def is_here(self) -> bool:
        """Whether its path still names it. Otherwise somebody has moved it away."""
        try:
            table, log = self.path.stat(), self.log.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return os.path.samestat(table, os.fstat(self._table)) and os.path.samestat(log, os.fstat(self._log))

    @contextmanager
    def committing(self) -> Iterator[None]:
        """Held while something is added to the log. Nothing is removed or set aside meanwhile."""
        with self._locked(shared=True):
            yield

    @contextmanager
    def removing(self) -> Iterator[None]:
        """Held from the look at what can go to its removal. Nobody commits meanwhile."""
        with self._locked(shared=False):
            yield

    def names(self) -> list[str]:
        return sorted(os.listdir(self._log))  # noqa: PTH208  a descriptor

    def versions(self) -> list[int]:
        """The versions whose commits are there, ascending."""
        return [int(name[:20]) for name in self.names() if commits.is_commit(name)]

    def newest_checkpoint(self) -> int:
        """The version of the newest checkpoint; -1 if there is none."""
        return max(checkpoints.whole(self.names()).values(), default=-1)

    def read(self, name: str) -> bytes | None:
        """A file of the log; None if it is not there."""
        try:
            with os.fdopen(os.open(name, os.O_RDONLY, dir_fd=self._log), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def has_any_after(self, version: int) -> bool:
        """Whether one of the next few commits is there: then the one of this version has to be there too."""
        return any(self._exists(commits.name_of(version + number)) for number in range(1, _NEXT + 1))

    def is_empty(self, name: str) -> bool:
        """Whether it is there and has no content."""
        try:
            return not os.stat(name, dir_fd=self._log).st_size
        except FileNotFoundError:
            return False

    def state(self, name: str) -> State | None:
        """What changes whenever a file of the log is written to; None if it is not there."""
        try:
            found = os.stat(name, dir_fd=self._log)
        except FileNotFoundError:
            return None
        return State(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)

    def states(self, after: int) -> dict[str, State | None]:
        """The states of all commits after a version."""
        names = [commits.name_of(version) for version in self.versions() if version > after]
        return {name: self.state(name) for name in names}

    def identity(self) -> tuple[int, int]:
        """What tells this folder from another one that takes its place."""
        found = os.fstat(self._log)
        return found.st_dev, found.st_ino

    def mark(self, version: int) -> str | None:
        """The mark of a commit, or of its checkpoint if the commit was cleaned up; None if neither is there."""
        data = self.read(commits.name_of(version))
        if data is None:
            found = checkpoints.versions_of(self.names())
            parts = [self.read(name) or b"" for name, summed_up in found.items() if summed_up == version]
            data = b"".join(part for part in parts if part)
        return history.mark(data) if data else None

    def create(self, name: str, data: bytes) -> None:
        """A new file, atomic and durable; FileExistsError if the name is taken."""
        create_file(self._log, name, data)

    def replace(self, name: str, data: bytes) -> None:
        """A file that takes the place of the one that is there, atomic and durable."""
        replace_file(self._log, name, data)

    def set_aside(self, name: str) -> None:
        """Keeps a file under another name, `.torn`, for whoever wants to look at it. Durable."""
        taken = set(self.names())
        free = (f"{name}{count}.torn" for count in ("", *(f".{number}" for number in range(2, len(taken) + 3))))
        aside = next(one for one in free if one not in taken)
        with faults.around("lake.set_aside"):
            os.rename(name, aside, src_dir_fd=self._log, dst_dir_fd=self._log)
        os.fsync(self._log)

    def require(self, files: Iterable[str]) -> None:
        """FileNotFoundError if one of these data files is not in this folder."""
        for file in files:
            os.stat(file, dir_fd=self._table)

    def remove(self, path: str) -> None:
        """Removes a file that is part of no commit, named from the table's folder."""
        with faults.around("lake.remove"):
            try:
                os.unlink(path, dir_fd=self._table)
            except FileNotFoundError:
                return

    def sync(self, names: Iterable[str]) -> None:
        """Makes files of the log durable, and all names."""
        for name in names:
            with suppress(FileNotFoundError):
                sync(name, within=self._log)
        os.fsync(self._log)
        os.fsync(self._table)

    def _exists(self, name: str) -> bool:
        return os.access(name, os.F_OK, dir_fd=self._log)

    @contextmanager
    def _locked(self, *, shared: bool) -> Iterator[None]:
        # Closing the file gives the lock back, as does the end of the process.
        while True:
            with os.fdopen(self._open_lock(), "rb") as file:
                self._wait_for(file, shared)
                # Somebody may have deleted it meanwhile: then this is a lock that nobody else sees.
                if self._is_lock(file):
                    yield
                    return

    def _open_lock(self) -> int:
        """Read-only is enough for a lock on local file systems: whoever has made it does not lock the others out."""
        try:
            with suppress(FileNotFoundError):
                try:
                    return os.open(_LOCK, os.O_RDWR, dir_fd=self._log)
                except PermissionError:
                    return os.open(_LOCK, os.O_RDONLY, dir_fd=self._log)
            return self._make_lock()
        except OSError as error:
            raise LakeUnwritable(directory=str(self.log / _LOCK), reason=error) from error

    def _make_lock(self) -> int:
        """It belongs to whom the log belongs to, also if root makes it."""
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
        """Says so after some seconds: whoever has the lock may have been stopped."""
        told = time.monotonic() + _PATIENCE
        while True:
            if try_lock(file, shared=shared):
                return
            if time.monotonic() >= told:
                _logger.warning("Still waiting for the lock %s: another process holds it", self.log / _LOCK)
                told = time.monotonic() + 60.0
            time.sleep(_LOOK_SECONDS)
