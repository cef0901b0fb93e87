"""Sets files of a log aside that a power cut has torn, before the table is opened. They were never acknowledged.

Our own commits are on disk before they get their name. Those of other engines are not. The log is locked while a file
is set aside, and each finding is checked again under the lock: another process may open the table at the same time.

The bytes alone do not prove a power cut: `cp` also leaves a file empty for a moment when it restores a backup. So a
commit that was on disk before is damaged, not torn, and a file is set aside only after it has stopped changing.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Collection, Iterable, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from ticklake import faults
from ticklake.lake.delta import checkpoints, commits, history
from ticklake.lake.delta.checkpoints import checkpoint_name, is_checkpoint
from ticklake.lake.delta.folder import State, TableFolder
from ticklake.lake.delta.parquet import checksum_of
from ticklake.lake.delta.scratch import HINT
from ticklake.lake.delta.summary import Summary
from ticklake.lake.errors import DamagedCommit

_log = logging.getLogger(__name__)

Findings = dict[str, str]
"""Names of files to set aside, in this order, with the reason."""

# Copying a file back is assumed to pause for less than this.
_STILL_SECONDS = 2.0
_LOOK_SECONDS = 0.05
_VERSIONED = re.compile(r"\d{20}\..+(?<!\.torn)")
"""The names of commits, checkpoints and their companions, without those that were set aside."""


def recover(folder: TableFolder, seen: int = -1) -> None:
    """Checks what is usually torn: the newest commit, empty ones before it, and our newest checkpoint.

    The caller has read the commits up to version `seen` without errors. If one fails now, it is damaged, not torn.
    """
    check_whole(folder)
    _set_aside(folder, _damaged_checkpoint)
    set_newest_aside_if_torn(folder, seen)


def set_newest_aside_if_torn(folder: TableFolder, seen: int = -1) -> None:
    """Checks the newest commit, and empty ones before it."""
    _set_aside(folder, lambda folder: _newest(folder, seen))


def recover_all(folder: TableFolder, seen: int = -1) -> None:
    """Checks every commit and checkpoint: if several writers competed, several can be torn."""
    with folder.removing():
        _remove_hint(folder)
    _set_aside(folder, _checkpoints)
    _set_aside(folder, lambda folder: _from_first_torn(folder, folder.versions(), seen))


def log_states(folder: TableFolder) -> dict[str, State | None]:
    """Returns the states of all commits and checkpoints, the newest first."""
    return {name: folder.state(name) for name in reversed(folder.names()) if _VERSIONED.fullmatch(name)}


def set_log_aside(folder: TableFolder, states: dict[str, State | None], reason: str) -> bool:
    """Sets a whole log aside, so that the table is created again. Only for a table that is a copy of another place.

    Does nothing and returns False if the log has changed since these states: it is repaired or copied back.
    """
    _wait_until_still(folder, states)
    with folder.removing():
        if log_states(folder) != states or not folder.is_here():
            return False
        for name in states:
            folder.read(name)  # a read error is raised: the file may be whole
        _remove_hint(folder)
        _move(folder, dict.fromkeys(states, reason))
    return True


def durable_version(folder: TableFolder) -> int:
    """Returns the version up to which all commits are on disk and in a checkpoint, or -1."""
    return min(Summary.stored(folder.location).version, folder.newest_checkpoint())


def check_intact(folder: TableFolder) -> None:
    """Raises DamagedCommit if a commit is missing or torn: its files would look unused."""
    check_whole(folder)
    for version in (version for version in folder.versions() if version > durable_version(folder)):
        if _is_torn(folder, version):
            raise DamagedCommit(
                file=str(folder.location.log_file(commits.name_of(version))), reason="it is empty or cut off"
            )


def check_whole(folder: TableFolder) -> None:
    """Raises DamagedCommit if a commit is missing before a later one.

    A power cut leaves no such gap, because every commit is on disk before the next one is made. So it was removed
    later, and the commits after it were acknowledged.
    """
    while True:
        versions = folder.versions()
        gap = history.missing(versions, folder.newest_checkpoint())
        if gap is None:
            return
        # A listing may miss a commit that was added meanwhile, and contain a later one.
        if folder.read(commits.name_of(gap)) is None:
            file = folder.location.log_file(commits.name_of(gap))
            raise DamagedCommit(file=str(file), reason=f"it is missing, but later commits exist, up to {versions[-1]}")


def _set_aside(folder: TableFolder, look: Callable[[TableFolder], Findings]) -> None:
    while found := look(folder):
        faults.reach("lake.torn")
        states = _wait_until_still(folder, found)
        with folder.removing():
            found = look(folder)
            if {name: folder.state(name) for name in found} == states:
                _move(folder, found)
                return


def _wait_until_still(folder: TableFolder, names: Iterable[str]) -> dict[str, State | None]:
    """Waits until these files stop changing, and returns their states. Does not wait for old files."""
    states: dict[str, State | None] = {}
    since = time.monotonic()
    while True:
        found = {name: folder.state(name) for name in names}
        if found != states:
            states, since = found, time.monotonic()
        newest = max((state.written_ns for state in states.values() if state is not None), default=0) / 1e9
        if time.monotonic() - since >= _STILL_SECONDS or time.time() - newest >= _STILL_SECONDS:
            return states
        time.sleep(_LOOK_SECONDS)


def _move(folder: TableFolder, found: Findings) -> None:
    if any(map(is_checkpoint, found)):
        _remove_hint(folder)
    for name, reason in found.items():
        _log.warning("Set %s aside: %s", folder.location.log_file(name), reason)
        folder.set_aside(name)
    if any(map(commits.is_commit, found)):
        Summary.forget(folder)


def _remove_hint(folder: TableFolder) -> None:
    """Removes the hint first: a table opens without a hint, but not with a hint to a missing checkpoint."""
    folder.remove_log_file(HINT)


def _newest(folder: TableFolder, seen: int) -> Findings:
    versions = folder.versions()
    if not versions:
        return {}
    # delta-rs silently skips an empty commit further back.
    after = durable_version(folder)
    if any(folder.is_empty(commits.name_of(version)) for version in versions[:-1] if version > after):
        return _from_first_torn(folder, versions, seen)
    return _from_first_torn(folder, versions[-1:], seen)


def _from_first_torn(folder: TableFolder, versions: Sequence[int], seen: int) -> Findings:
    """Returns the first torn commit and all after it, the last one first: a crash in between leaves no gap.

    A commit is acknowledged only when all before it are on disk. So a torn commit and those after it were not
    acknowledged, and are written again. A commit that was on disk, or is damaged in another way, may have been
    acknowledged: then this raises `DamagedCommit` and changes nothing.
    """
    torn = next((place for place, version in enumerate(versions) if _is_torn(folder, version)), len(versions))
    if torn < len(versions) and (proof := _proof(folder, versions[torn], versions[torn + 1 :], seen)):
        file = folder.location.log_file(commits.name_of(versions[torn]))
        raise DamagedCommit(file=str(file), reason=f"it is empty or cut off, but {proof}")
    reason = (
        "a power cut has torn it or a commit before it. Its batches are delivered again; if they were "
        "acknowledged, `ticklake index` writes them again."
    )
    return {commits.name_of(version): reason for version in reversed(versions[torn:])}


def _proof(folder: TableFolder, version: int, later: Iterable[int], seen: int) -> str | None:
    """Returns the proof that a commit was complete and on disk, or None."""
    if version <= seen:
        return "it was complete a moment ago; perhaps it is being copied"
    if version <= Summary.stored(folder.location).version:
        return "it was on disk when a later checkpoint was made"
    # Our commits are made only when all before them are on disk.
    own = (number for number in later if f'"{commits.AFTER}"'.encode() in (folder.read(commits.name_of(number)) or b""))
    after = next(own, None)
    return None if after is None else f"it was on disk when commit {after} was made"


def _is_torn(folder: TableFolder, version: int) -> bool:
    name = commits.name_of(version)
    data = folder.read(name)
    if data is None:
        return False
    if commits.is_torn(data):
        return True
    try:
        commits.decode_commit(data, "")
    except ValueError as error:
        raise DamagedCommit(file=str(folder.location.log_file(name)), reason=error) from error
    return False


def _damaged_checkpoint(folder: TableFolder) -> Findings:
    """Finds our newest checkpoint if its checksum is wrong."""
    summary = Summary.stored(folder.location)
    name = checkpoint_name(summary.version)
    data = folder.read(name) if summary.checkpoint else None
    if data is None or checksum_of(data) == summary.checkpoint or not opens_without(folder, [name]):
        return {}
    return {name: "its checksum is wrong. The commits are read instead."}


def opens_without(folder: TableFolder, gone: Collection[str]) -> bool:
    """Returns True if the log is complete without these checkpoints: all commits since the start or another one exist.

    Otherwise another writer has made the checkpoint and cleaned the log up, and nothing can replace it.
    """
    names, versions = folder.names(), folder.versions()
    checkpoint = max(checkpoints.whole(name for name in names if name not in gone).values(), default=-1)
    newest = max([*checkpoints.whole(names).values(), *versions], default=-1)
    return history.missing({*versions, newest + 1}, checkpoint) is None


def old_checkpoints(folder: TableFolder) -> list[str]:
    """Returns the checkpoints that no version needs. The newest and the one that the hint names are kept.

    All are kept if a commit is missing: another engine has cleaned the log up, and older versions need them.
    """
    found = checkpoints.versions_of(folder.names())
    newest = folder.newest_checkpoint()
    kept = _hinted(folder, newest)
    if kept is None or not opens_without(folder, found):
        return []
    return sorted(name for name, version in found.items() if version < newest and version != kept)


def _hinted(folder: TableFolder, newest: int) -> int | None:
    """Returns the version that the hint names, the newest if there is no hint, or None if the hint is not valid."""
    data = folder.read(HINT)
    if data is None:
        return newest
    try:
        return int(json.loads(data)["version"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return None


def _checkpoints(folder: TableFolder) -> Findings:
    """Finds all checkpoints if every commit still exists, because they are only shortcuts. Otherwise the torn ones.

    Finds none if the log is not complete without them.
    """
    versions = folder.versions()
    all_there = bool(versions) and versions == list(range(len(versions)))
    found: Findings = {}
    for name in (name for name in folder.names() if is_checkpoint(name) and name.endswith(".parquet")):
        # A read error is raised here, outside `try`: the file is not torn.
        data = folder.read(name) or b""
        try:
            pq.read_table(pa.BufferReader(data))
            if all_there:
                found[name] = "the table cannot be opened with it. The commits are read instead."
        except (OSError, pa.ArrowException) as error:
            found[name] = f"{error}. The commits are read instead."
    return found if opens_without(folder, found) else {}
