"""What keeps a commit and a vacuum apart: a file that is being committed is not removed, whatever its age."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_NAME = "_ticklake.lock"


@contextmanager
def committing(directory: Path, paths: Sequence[str]) -> Iterator[None]:
    """Held while these files are committed; they are there until then. FileNotFoundError where one is gone already."""
    with _locked(directory, fcntl.LOCK_SH):
        for path in paths:
            (directory / path).stat()
        yield


@contextmanager
def removing(directory: Path) -> Iterator[None]:
    """Held from the look at which files are in no commit to their removal."""
    with _locked(directory, fcntl.LOCK_EX):
        yield


@contextmanager
def _locked(directory: Path, kind: int) -> Iterator[None]:
    with (directory / "_delta_log" / _NAME).open("ab") as file:
        # Closing the file gives the lock back, as does the end of the process.
        fcntl.flock(file, kind)
        yield
