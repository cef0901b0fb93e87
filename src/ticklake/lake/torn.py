"""What a power cut has torn in a log, set aside before the table is opened: none of it was acknowledged.

Our own commits are on disk before they have a name. Those of delta-rs and of other engines are not.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ticklake.errors import DamagedCommit
from ticklake.lake import commits
from ticklake.lake.durable import remove, set_aside, sync_directory
from ticklake.lake.parquet import checksum
from ticklake.lake.summary import Summary

_log = logging.getLogger(__name__)

HINT = "_last_checkpoint"


def set_newest_aside(log: Path) -> None:
    """Looks into the newest commit alone, which is all that usually can be torn."""
    newest = _newest(log)
    if newest is None:
        return
    if _is_torn(newest):
        _set_aside(log, [newest])
    # An empty one further back is none to delta-rs: it would be passed over in silence.
    recent = range(Summary.stored(log).version + 1, int(newest.stem))
    if any(path.exists() and not path.stat().st_size for path in (log / commits.name_of(n) for n in recent)):
        set_all_aside(log)


def set_all_aside(log: Path) -> None:
    """Where several writers competed, several can be torn.

    A commit is acknowledged only when all before it are on disk. So a torn one was not, nor was any after it: they are
    written again. One that is damaged without being torn was, perhaps: `DamagedCommit`, and nothing is touched.
    """
    found = _commits(log)
    torn = next((place for place, commit in enumerate(found) if _is_torn(commit)), None)
    if torn is not None:
        _set_aside(log, found[torn:])


def checkpoint_name(version: int) -> str:
    return f"{version:020d}.checkpoint.parquet"


def set_damaged_checkpoint_aside(log: Path) -> None:
    """The newest one of ours is not as it was written."""
    summary = Summary.stored(log)
    checkpoint = log / checkpoint_name(summary.version)
    if summary.checkpoint and checkpoint.exists() and checksum(checkpoint) != summary.checkpoint:
        _set_checkpoint_aside(checkpoint, "its checksum is wrong")


def set_checkpoints_aside(log: Path) -> None:
    """A checkpoint only saves reading: where every commit is still there, all can go; else those that are torn."""
    found = _commits(log)
    all_there = bool(found) and [commit.name for commit in found] == [commits.name_of(n) for n in range(len(found))]
    for checkpoint in log.glob("*.checkpoint.parquet"):
        try:
            pq.read_table(checkpoint)
            if all_there:
                _set_checkpoint_aside(checkpoint, "the table cannot be opened with it")
        except (OSError, pa.ArrowException) as error:
            _set_checkpoint_aside(checkpoint, error)
    remove(log / HINT)
    sync_directory(log)


def _set_checkpoint_aside(checkpoint: Path, reason: object) -> None:
    _log.warning("Set %s aside, the commits are read instead: %s", checkpoint, reason)
    set_aside(checkpoint, f"{checkpoint.name}.torn")
    remove(checkpoint.with_name(HINT))
    sync_directory(checkpoint.parent)


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
        _log.warning(
            "Set %s aside: a power cut has torn it or a commit before it. What it held is delivered again; "
            "if its batches were acknowledged all the same, `ticklake index` writes them again.",
            commit,
        )
        set_aside(commit, f"{commit.name}.torn")
    Summary.forget(log)
    sync_directory(log)


def _is_torn(commit: Path) -> bool:
    data = commit.read_bytes()
    if commits.is_torn(data):
        return True
    try:
        commits.decoded(data, "")
    except ValueError as error:
        raise DamagedCommit(file=str(commit), reason=error) from error
    return False
