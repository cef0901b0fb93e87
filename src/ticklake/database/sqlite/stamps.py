"""Tells by times and sizes whether a SQLite file was written to. Opens no file."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

SETTLE_NS = 2_000_000_000
SKEW_NS = 3600 * 1_000_000_000
"""A time further in the future than this is from a clock that was wrong. The next write will have another one."""


def stamps_of(files: Mapping[str, Path]) -> dict[str, object]:
    """Returns a stamp for each file that exists, by its name; None if it was written to just now."""
    found = ((name, stamp_of(path)) for name, path in files.items())
    return {name: None if stamp.fresh else stamp for name, stamp in found if stamp is not None}


class Stamp(NamedTuple):
    """Time and size of a file and of its -wal, and the number of the file, which a replaced file does not have."""

    file: tuple[int, int]
    wal: tuple[int, int]
    inode: int

    @property
    def fresh(self) -> bool:
        """Whether another write could leave the same times: file systems do not record every nanosecond."""
        return -SKEW_NS < time.time_ns() - max(self.file[0], self.wal[0]) < SETTLE_NS


def stamp_of(path: Path) -> Stamp | None:
    """Returns the stamp of a file; None if it does not exist."""
    name = str(path)
    try:
        file = os.stat(name)  # noqa: PTH116  twice as fast as a Path, for thousands of files
    except OSError:
        return None
    try:
        wal = os.stat(f"{name}-wal")  # noqa: PTH116
    except OSError:
        return Stamp((file.st_mtime_ns, file.st_size), (0, 0), file.st_ino)
    return Stamp((file.st_mtime_ns, file.st_size), (wal.st_mtime_ns, wal.st_size), file.st_ino)


class Listing:
    """Remembers the runs of files. So a list of 10,000 runs opens only those files that were written to."""

    def __init__(self, read: Callable[[Path], list[str]]) -> None:
        self._read = read
        self._known: dict[Path, tuple[Stamp, list[str]]] = {}

    def ids(self, path: Path) -> list[str]:
        before, stamp = self._known.get(path), stamp_of(path)  # before the file is read: a write changes the stamp
        if before is not None and before[0] == stamp:
            return before[1]
        self._known.pop(path, None)
        ids = self._read(path)
        if ids and stamp is not None and not stamp.fresh:
            self._known[path] = stamp, ids
        return ids

    def among(self, files: Iterable[Path]) -> list[Path]:
        """Returns these files in order, and forgets all others."""
        found = sorted(files)
        for path in {*self._known}.difference(found):
            self._known.pop(path, None)
        return found
