"""Checks every file of a table's log for damage, and that checkpoints agree with commits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa

from ticklake.lake.delta import (
    HINT,
    Commit,
    DeltaError,
    LiveFile,
    Location,
    Snapshot,
    Summary,
    TableFile,
    TableFolder,
    checkpoint_name,
    checksum,
    decode_commit,
    is_commit,
    live_files,
    one_line,
    opened_table,
    opens_without,
    read_rows,
    version_of,
    versions_of,
)
from ticklake.lake.errors import DamagedCommit
from ticklake.ticks import TickRange

# In this order: a table does not open if the hint names a missing checkpoint.
_REMOVE = f"remove {HINT} beside it and then the file itself; all commits exist"


class Inspection(NamedTuple):
    """Flaws of log files by path, and the checksums and bounds of all data files that the commits list."""

    flaws: dict[str, str]
    checksums: dict[str, str]
    bounds: dict[str, TickRange]


def inspected(location: Location, ordinal: str = "tick_number") -> Inspection:
    """Reads and checks the whole log."""
    summary = Summary.stored(location)
    own = {checkpoint_name(summary.version): summary.checkpoint}
    flaws = {str(file): flaw for file in _checkpoints(location) if (flaw := _flaw(file, own.get(file.name, "")))}
    history: dict[int, Commit] = {}
    for file in map(location.log_file, filter(is_commit, location.log_names())):
        try:
            history[version_of(file.name)] = decode_commit(file.read(), ordinal)
        except (OSError, ValueError) as error:
            flaws[str(file)] = str(DamagedCommit(file=str(file), reason=one_line(error)))
    if not flaws:
        flaws |= _difference(location, history, ordinal)
    sums = {path: found for commit in history.values() for path, found in commit.checksums.items()}
    bounds = {added.path: added.ticks for commit in history.values() for added in commit.adds}
    return Inspection(flaws, sums, bounds)


def _flaw(checkpoint: TableFile, expected: str) -> str:
    """Returns what is wrong with a checkpoint, or an empty text.

    If the table needs it, another writer may have replaced ours and cleaned the log up: our checksum does not count.
    """
    with TableFolder(checkpoint.location) as folder:
        removable = opens_without(folder, [checkpoint.name])
    advice = _REMOVE if removable else "restore it, because commits before it are gone"
    if removable and expected and checksum(checkpoint) != expected:
        return f"its checksum is wrong; {advice}"
    try:
        read_rows(checkpoint)
    except (OSError, pa.ArrowException) as error:
        return f"{one_line(error)}; {advice}"
    return ""


def _difference(location: Location, history: dict[int, Commit], ordinal: str) -> dict[str, str]:
    """Compares the files of the table with the commits. Checkpoints have no checksum, but must agree with commits."""
    try:
        delta = opened_table(location)
        found = _sizes(live_files(delta, ordinal))
    except (DeltaError, OSError) as error:
        return {location.log: one_line(error)}
    versions = range(int(delta.version()) + 1)
    if not all(version in history for version in versions):
        return {}
    return _compared(location, found, _sizes(_replayed([history[version] for version in versions])))


def _sizes(files: Iterable[LiveFile]) -> set[tuple[str, int]]:
    """Returns paths and sizes. Statistics are left out, because delta-rs returns only some of them."""
    return {(file.path, file.size) for file in files}


def _compared(location: Location, found: set[tuple[str, int]], replayed: set[tuple[str, int]]) -> dict[str, str]:
    if found == replayed:
        return {}
    path, _ = min(found ^ replayed)
    reason = f"it does not agree with the commits, first about {path}; {_REMOVE}"
    return {str(newest): reason for newest in _checkpoints(location)[-1:]}


def _checkpoints(location: Location) -> list[TableFile]:
    """Returns the checkpoints ordered by version, the newest last."""
    names = (name for name in versions_of(location.log_names()) if name.endswith(".parquet"))
    return [location.log_file(name) for name in names]


def _replayed(history: list[Commit]) -> Snapshot:
    files = Snapshot()
    for commit in history:
        for path in commit.removes:
            files.remove(path)
        for file in commit.adds:
            files.add(file)
    return files
