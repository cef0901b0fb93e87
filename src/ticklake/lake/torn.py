"""What a power cut has torn in a log, set aside before the table is opened: none of it was acknowledged.

Our own commits are on disk before they have a name. Those of other engines are not. Nobody commits while something is
set aside, and each finding is looked at again then: the slower of two that open a table finds what the other has made.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from ticklake import faults
from ticklake.errors import DamagedCommit
from ticklake.lake import commits, history
from ticklake.lake.folder import TableFolder
from ticklake.lake.parquet import checksum_of
from ticklake.lake.scratch import HINT, is_checkpoint
from ticklake.lake.summary import Summary

_log = logging.getLogger(__name__)

Findings = dict[str, str]
"""Names of files to be set aside, in this order, with the reason."""


def recover(folder: TableFolder) -> None:
    """Looks at what usually can be torn: the newest commit, empty ones before it, and the newest checkpoint of ours."""
    check_whole(folder)
    _set_aside(folder, _newest)
    _set_aside(folder, _damaged_checkpoint)


def recover_all(folder: TableFolder) -> None:
    """Looks at every commit and checkpoint: where several writers competed, several can be torn."""
    _set_aside(folder, _checkpoints)
    _set_aside(folder, _all_torn)


def check_whole(folder: TableFolder) -> None:
    """DamagedCommit if a commit is missing before a later one.

    A power cut leaves no such hole, since every commit is on disk before the next one is made: somebody has taken it
    away, and what comes after it was acknowledged.
    """
    while True:
        versions = folder.versions()
        gap = history.missing(versions, folder.newest_checkpoint())
        if gap is None:
            return
        # A listing may miss what came while it was made, and have what came after that.
        if folder.read(commits.name_of(gap)) is None:
            file = folder.log / commits.name_of(gap)
            raise DamagedCommit(file=str(file), reason=f"it is missing, and commits up to {versions[-1]} come after it")


def checkpoint_name(version: int) -> str:
    return f"{version:020d}.checkpoint.parquet"


def _set_aside(folder: TableFolder, look: Callable[[TableFolder], Findings]) -> None:
    if not look(folder):
        return
    faults.reach("lake.torn")
    with folder.removing():
        found = look(folder)
        for name, reason in found.items():
            _log.warning("Set %s aside: %s", folder.log / name, reason)
            folder.set_aside(name)
        if any(map(is_checkpoint, found)):
            folder.remove(f"{folder.log.name}/{HINT}")
        if any(map(commits.is_commit, found)):
            Summary.forget(folder)


def _newest(folder: TableFolder) -> Findings:
    versions = folder.versions()
    if not versions:
        return {}
    # An empty one further back is none to delta-rs: it would be passed over in silence.
    recent = [version for version in versions[:-1] if version > Summary.stored(folder.log).version]
    if any(folder.is_empty(commits.name_of(version)) for version in recent):
        return _all_torn(folder)
    return _from_first_torn(folder, versions[-1:])


def _all_torn(folder: TableFolder) -> Findings:
    return _from_first_torn(folder, folder.versions())


def _from_first_torn(folder: TableFolder, versions: Sequence[int]) -> Findings:
    """The first torn one and all after it, the last one first: a crash in between leaves no hole.

    A commit is acknowledged only when all before it are on disk. So a torn one was not, nor was any after it: they are
    written again. One that is damaged without being torn was, perhaps: `DamagedCommit`, and nothing is touched.
    """
    torn = next((place for place, version in enumerate(versions) if _is_torn(folder, version)), len(versions))
    reason = (
        "a power cut has torn it or a commit before it. What it held is delivered again; if its batches were "
        "acknowledged all the same, `ticklake index` writes them again."
    )
    return {commits.name_of(version): reason for version in reversed(versions[torn:])}


def _is_torn(folder: TableFolder, version: int) -> bool:
    name = commits.name_of(version)
    data = folder.read(name)
    if data is None:
        return False
    if commits.is_torn(data):
        return True
    try:
        commits.decoded(data, "")
    except ValueError as error:
        raise DamagedCommit(file=str(folder.log / name), reason=error) from error
    return False


def _damaged_checkpoint(folder: TableFolder) -> Findings:
    """The newest one of ours is not as it was written."""
    summary = Summary.stored(folder.log)
    name = checkpoint_name(summary.version)
    data = folder.read(name) if summary.checkpoint else None
    if data is None or checksum_of(data) == summary.checkpoint:
        return {}
    return {name: "its checksum is wrong. The commits are read instead."}


def _checkpoints(folder: TableFolder) -> Findings:
    """A checkpoint only saves reading: if every commit is still there, all can go; else those that are torn."""
    versions = folder.versions()
    all_there = bool(versions) and versions == list(range(len(versions)))
    found: Findings = {}
    for name in filter(is_checkpoint, folder.names()):
        try:
            pq.read_table(pa.BufferReader(folder.read(name) or b""))
            if all_there:
                found[name] = "the table cannot be opened with it. The commits are read instead."
        except (OSError, pa.ArrowException) as error:
            found[name] = f"{error}. The commits are read instead."
    return found
