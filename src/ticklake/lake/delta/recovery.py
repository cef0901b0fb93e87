"""What a power cut has torn in a log, set aside before the table is opened: none of it was acknowledged.

Our own commits are on disk before they have a name. Those of other engines are not. Nobody commits while something is
set aside, and each finding is looked at again then: the slower of two that open a table finds what the other has made.

The bytes alone do not prove a power cut: `cp` also leaves a file empty for a moment when it copies a backup over it. So
a commit that is known to have been on disk is damaged, never torn; and a file is set aside only after it stood still.
"""

from __future__ import annotations

import json
import logging
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
"""Names of files to be set aside, in this order, with the reason."""

# Whoever copies a file back writes all of it within this time.
_STILL_SECONDS = 2.0
_LOOK_SECONDS = 0.05


def recover(folder: TableFolder, seen: int = -1) -> None:
    """Looks at what usually can be torn: the newest commit, empty ones before it, and the newest checkpoint of ours.

    The caller has seen the commits up to version `seen` whole. So they are damaged now, and not torn.
    """
    check_whole(folder)
    _set_aside(folder, _damaged_checkpoint)
    _set_aside(folder, lambda folder: _newest(folder, seen))


def recover_all(folder: TableFolder, seen: int = -1) -> None:
    """Looks at every commit and checkpoint: if several writers competed, several can be torn."""
    with folder.removing():
        _remove_hint(folder)
    _set_aside(folder, _checkpoints)
    _set_aside(folder, lambda folder: _from_first_torn(folder, folder.versions(), seen))


def durable_version(folder: TableFolder) -> int:
    """The version up to which a checkpoint stands for all commits, which are on disk; -1 if there is none."""
    return min(Summary.stored(folder.log).version, folder.newest_checkpoint())


def check_intact(folder: TableFolder) -> None:
    """DamagedCommit if a commit is missing or torn: its files would look as if they were part of nothing."""
    check_whole(folder)
    for version in (version for version in folder.versions() if version > durable_version(folder)):
        if _is_torn(folder, version):
            raise DamagedCommit(file=str(folder.log / commits.name_of(version)), reason="it is empty or cut off")


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


def _set_aside(folder: TableFolder, look: Callable[[TableFolder], Findings]) -> None:
    while found := look(folder):
        faults.reach("lake.torn")
        states = _still(folder, found)
        with folder.removing():
            found = look(folder)
            if {name: folder.state(name) for name in found} == states:
                _move(folder, found)
                return


def _still(folder: TableFolder, names: Iterable[str]) -> dict[str, State | None]:
    """The states of these files once nobody writes to them. No waiting if they are old."""
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
        _log.warning("Set %s aside: %s", folder.log / name, reason)
        folder.set_aside(name)
    if any(map(commits.is_commit, found)):
        Summary.forget(folder)


def _remove_hint(folder: TableFolder) -> None:
    """A table opens without a hint, but not with one that names a checkpoint that is gone: so the hint goes first."""
    folder.remove(f"{folder.log.name}/{HINT}")


def _newest(folder: TableFolder, seen: int) -> Findings:
    versions = folder.versions()
    if not versions:
        return {}
    # An empty one further back is none to delta-rs: it would be passed over in silence.
    after = durable_version(folder)
    if any(folder.is_empty(commits.name_of(version)) for version in versions[:-1] if version > after):
        return _from_first_torn(folder, versions, seen)
    return _from_first_torn(folder, versions[-1:], seen)


def _from_first_torn(folder: TableFolder, versions: Sequence[int], seen: int) -> Findings:
    """The first torn one and all after it, the last one first: a crash in between leaves no hole.

    A commit is acknowledged only when all before it are on disk. So a torn one was not, nor was any after it: they are
    written again. One that is damaged without being torn was, perhaps, and one that is known to have been on disk:
    `DamagedCommit`, and nothing is touched.
    """
    torn = next((place for place, version in enumerate(versions) if _is_torn(folder, version)), len(versions))
    if torn < len(versions) and (proof := _proof(folder, versions[torn], versions[torn + 1 :], seen)):
        file = folder.log / commits.name_of(versions[torn])
        raise DamagedCommit(file=str(file), reason=f"it is empty or cut off, but {proof}")
    reason = (
        "a power cut has torn it or a commit before it. What it held is delivered again; if its batches were "
        "acknowledged all the same, `ticklake index` writes them again."
    )
    return {commits.name_of(version): reason for version in reversed(versions[torn:])}


def _proof(folder: TableFolder, version: int, later: Iterable[int], seen: int) -> str | None:
    """Why a commit must have been whole and on disk once; None if nothing tells."""
    if version <= seen:
        return "it was whole a moment ago; perhaps somebody is copying it"
    if version <= Summary.stored(folder.log).version:
        return "it was on disk when a checkpoint was made of it"
    # Ours are made only when all before them are on disk.
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
        raise DamagedCommit(file=str(folder.log / name), reason=error) from error
    return False


def _damaged_checkpoint(folder: TableFolder) -> Findings:
    """The newest one of ours is not as it was written."""
    summary = Summary.stored(folder.log)
    name = checkpoint_name(summary.version)
    data = folder.read(name) if summary.checkpoint else None
    if data is None or checksum_of(data) == summary.checkpoint or not opens_without(folder, [name]):
        return {}
    return {name: "it is not as we wrote it. The commits are read instead."}


def opens_without(folder: TableFolder, gone: Collection[str]) -> bool:
    """Whether the log tells everything without these checkpoints: all commits are there since the start or another one.

    Otherwise one that is not as we wrote it is another writer's, who has cleaned the log up: nothing can replace it.
    """
    names, versions = folder.names(), folder.versions()
    summed_up = max(checkpoints.whole(name for name in names if name not in gone).values(), default=-1)
    newest = max([*checkpoints.whole(names).values(), *versions], default=-1)
    return history.missing({*versions, newest + 1}, summed_up) is None


def old_checkpoints(folder: TableFolder) -> list[str]:
    """Those that nobody needs: the newest and the one that the hint names stay, and every version opens without these.

    All stay if a commit is missing: another engine has cleaned the log up, and older versions need them.
    """
    found = checkpoints.versions_of(folder.names())
    newest = folder.newest_checkpoint()
    kept = _hinted(folder, newest)
    if kept is None or not opens_without(folder, found):
        return []
    return sorted(name for name, version in found.items() if version < newest and version != kept)


def _hinted(folder: TableFolder, newest: int) -> int | None:
    """The version that the hint names, the newest if there is no hint; None if nobody can tell."""
    data = folder.read(HINT)
    if data is None:
        return newest
    try:
        return int(json.loads(data)["version"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return None


def _checkpoints(folder: TableFolder) -> Findings:
    """A checkpoint only saves reading: if every commit is still there, all can go; else those that are torn.

    None goes if nothing tells what it does.
    """
    versions = folder.versions()
    all_there = bool(versions) and versions == list(range(len(versions)))
    found: Findings = {}
    for name in (name for name in folder.names() if is_checkpoint(name) and name.endswith(".parquet")):
        # One that cannot be read just now is not torn.
        data = folder.read(name) or b""
        try:
            pq.read_table(pa.BufferReader(data))
            if all_there:
                found[name] = "the table cannot be opened with it. The commits are read instead."
        except (OSError, pa.ArrowException) as error:
            found[name] = f"{error}. The commits are read instead."
    return found if opens_without(folder, found) else {}
