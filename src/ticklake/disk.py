"""Files and directories that survive a power cut, and locks that the system releases when a process dies."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from ticklake import faults

_REMOVALS = 10
_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EBADF}


def sync(path: Path | str, *, within: int | None = None) -> None:
    """Waits until the content of a file, or the names in a directory, are on disk.

    `within` is the descriptor of an open directory that a relative path starts from.
    """
    descriptor = os.open(path, os.O_RDONLY, dir_fd=within)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def open_directory(directory: Path) -> Iterator[int]:
    """Opens a directory. Names that are relative to its descriptor stay in it, even if it is moved meanwhile."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def make_directory(directory: Path, *, shared: int = 1) -> None:
    """Makes a directory and its missing parents, durably.

    The last `shared` levels are synced even if they exist: another process may have just made them and not synced
    them yet.
    """
    missing = [folder for folder in (directory, *directory.parents) if not folder.exists()]
    made = dict.fromkeys((*missing, directory, *directory.parents[: shared - 1]))
    for folder in sorted(made, key=lambda one: len(one.parts)):
        with faults.around("storage.directory"):
            folder.mkdir(exist_ok=True)
        sync(folder.parent)


def remove_tree(directory: Path) -> None:
    """Removes a directory with everything in it, durably. Links are removed and not followed."""
    for attempt in range(_REMOVALS):
        try:
            _remove_once(directory)
            break
        except OSError as error:  # a process that was at work has just written another file
            if error.errno != errno.ENOTEMPTY or attempt == _REMOVALS - 1:
                raise
    if directory.parent.is_dir():
        sync(directory.parent)


def _remove_once(directory: Path) -> None:
    for below, folders, files in os.walk(directory, topdown=False):
        for name in files + [name for name in folders if Path(below, name).is_symlink()]:
            with faults.around("disk.remove"):
                Path(below, name).unlink(missing_ok=True)
        with suppress(FileNotFoundError):
            Path(below).rmdir()


def files_below(directory: Path) -> Iterator[Path]:
    """Yields all files below a directory, also hidden ones, links and special files."""
    for below, folders, files in os.walk(directory):
        for name in files + [name for name in folders if Path(below, name).is_symlink()]:
            yield Path(below, name)


def lock(file: int, *, wait: bool = True) -> bool:
    """Locks an open file. Without `wait`, returns False if another process holds the lock.

    Does nothing on a file system without locks.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return True


def try_lock(file: int | IO[bytes], *, shared: bool = False) -> bool:
    """Locks an open file, or returns False if another process holds the lock. Closing the file releases it."""
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
