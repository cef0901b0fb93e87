"""Making what was written survive a power cut: neither Parquet nor Delta writers sync anything themselves."""

from __future__ import annotations

import os
from pathlib import Path

from ticklake import faults


def sync_file(path: Path) -> None:
    _sync(path, os.O_RDONLY)


def sync_directory(path: Path) -> None:
    _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def make_directory(path: Path) -> None:
    """Creates a table's directory, `LAKE/RUN/TABLE`, and what is missing above it, on disk too.

    Also what is there already: another indexer may have made it a moment ago and not have come to sync it.
    """
    missing = [parent for parent in (path, *path.parents) if not parent.exists()]
    with faults.around("lake.directory"):
        path.mkdir(parents=True, exist_ok=True)
    for folder in dict.fromkeys((*missing, path, *path.parents[:2])):
        sync_directory(folder.parent)


def remove(path: Path) -> None:
    """Removes a file that is part of no commit. Left behind by a crash, it waits for vacuum."""
    with faults.around("lake.remove"):
        path.unlink(missing_ok=True)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
