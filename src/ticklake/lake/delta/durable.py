"""Directories of tables, and files of theirs that are part of no commit."""

from __future__ import annotations

from pathlib import Path

from ticklake import disk, faults


def make_directory(path: Path) -> None:
    """Makes a table's directory, `LAKE/RUN/TABLE`, on disk too; another indexer may be making the same."""
    disk.make_directory(path, shared=3)


def remove(path: Path) -> None:
    """Removes a file that is part of no commit. Left behind by a crash, it waits for vacuum."""
    with faults.around("lake.remove"):
        path.unlink(missing_ok=True)
