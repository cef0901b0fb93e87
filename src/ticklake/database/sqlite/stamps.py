"""Tells by times and sizes whether a SQLite file was written to. Opens no file."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

SETTLE_NS = 2_000_000_000
SKEW_NS = 3600 * 1_000_000_000
"""A time further in the future than this is from a clock that was wrong. The next write will have another one."""


def stamps_of(files: Mapping[str, Path]) -> dict[str, object]:
    """Returns a stamp for each file that exists, by its name; None if it was written to just now."""
    found = ((name, _stamp(path)) for name, path in files.items())
    return {name: None if stamp.fresh else stamp for name, stamp in found if stamp is not None}


class Stamp(NamedTuple):
    """Times and sizes of a file and its -wal."""

    file: tuple[int, int]
    wal: tuple[int, int]

    @property
    def fresh(self) -> bool:
        """Whether another write could leave the same times: file systems do not record every nanosecond."""
        return -SKEW_NS < time.time_ns() - max(self.file[0], self.wal[0]) < SETTLE_NS


def _stamp(path: Path) -> Stamp | None:
    try:
        file = path.stat()
    except OSError:
        return None
    try:
        wal = Path(f"{path}-wal").stat()
    except OSError:
        return Stamp((file.st_mtime_ns, file.st_size), (0, 0))
    return Stamp((file.st_mtime_ns, file.st_size), (wal.st_mtime_ns, wal.st_size))
