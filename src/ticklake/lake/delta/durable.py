"""Makes directories of tables durably, and removes files that are not part of a commit."""

from __future__ import annotations

from pathlib import Path

from ticklake import disk, faults


def make_directory(path: Path) -> None:
    """Makes a table's directory, `LAKE/RUN/TABLE`, durably. Another indexer may make it at the same time."""
    disk.make_directory(path, shared=3)


def remove(path: Path) -> None:
    """Removes a file that is not part of a commit. After a crash, vacuum removes it."""
    with faults.around("lake.remove"):
        path.unlink(missing_ok=True)
