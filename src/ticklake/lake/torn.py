"""What a power cut has torn in a log, set aside before the table is opened: none of it was acknowledged.

Our own commits are on disk before they have a name. Those of delta-rs and of other engines are not.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ticklake.lake import commits
from ticklake.lake.durable import remove, set_aside, sync_directory
from ticklake.lake.summary import Summary

HINT = "_last_checkpoint"


def set_newest_aside(log: Path) -> None:
    """Looks at the newest commit alone, which is all that usually can be torn."""
    newest = _newest(log)
    if newest is not None and not _is_whole(newest):
        _set_aside(log, [newest])


def set_all_aside(log: Path) -> None:
    """Where several writers competed, several can be torn.

    A commit is acknowledged only when all before it are on disk. So a torn one was not, nor was any after it: they are
    written again.
    """
    found = _commits(log)
    torn = next((place for place, commit in enumerate(found) if not _is_whole(commit)), None)
    if torn is not None:
        _set_aside(log, found[torn:])


def set_checkpoints_aside(log: Path) -> None:
    """A checkpoint only saves reading: every commit it sums up is still there, so a torn one can go."""
    for checkpoint in log.glob("*.checkpoint.parquet"):
        try:
            pq.read_metadata(checkpoint)
        except (OSError, pa.ArrowInvalid):
            set_aside(checkpoint, f"{checkpoint.name}.torn")
    remove(log / HINT)
    sync_directory(log)


def _newest(log: Path) -> Path | None:
    """Found from the last checkpoint on, without a look at the whole log."""
    try:
        version = int(json.loads((log / HINT).read_bytes())["version"])
    except (OSError, ValueError, KeyError, TypeError):
        version = 0
    if not (log / commits.name_of(version)).exists():
        return next(reversed(_commits(log)), None)
    while (log / commits.name_of(version + 1)).exists():
        version += 1
    return log / commits.name_of(version)


def _commits(log: Path) -> list[Path]:
    return sorted(path for path in log.glob("*.json") if path.stem.isdigit())


def _set_aside(log: Path, found: Sequence[Path]) -> None:
    for commit in reversed(found):
        set_aside(commit, f"{commit.name}.torn")
    Summary.forget(log)
    sync_directory(log)


def _is_whole(commit: Path) -> bool:
    try:
        lines = commit.read_bytes().splitlines()
        return bool(lines) and all(isinstance(json.loads(line), dict) for line in lines)
    except (ValueError, RecursionError):
        return False
