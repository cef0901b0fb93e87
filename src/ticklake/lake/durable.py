"""Making what was written survive a power cut: neither Parquet nor Delta writers sync anything themselves."""

from __future__ import annotations

import os
from pathlib import Path


def sync_file(path: Path) -> None:
    _sync(path, os.O_RDONLY)


def sync_directory(path: Path) -> None:
    _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def make_directory(path: Path) -> None:
    """Creates a directory and its parents, each entry on disk before anything is put into it."""
    missing = [parent for parent in (path, *path.parents) if not parent.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for created in missing:
        sync_directory(created.parent)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
