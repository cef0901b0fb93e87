"""What a table says of itself: the features that its readers must know, its key, and its run."""

from __future__ import annotations

import json
import re
from pathlib import Path

from deltalake import DeltaTable

from ticklake.lake.delta.commits import SOURCES, info_of, read_commit
from ticklake.lake.delta.files import is_counted_by
from ticklake.lake.errors import TableOfAnotherRun, UnknownTableFormat

KEY = "ticklake.key"
"""The table property that names the columns of its key."""
INDEXER = "ticklake.indexer"
"""The table property that names the indexer which fills it, as MODULE:CLASS."""
RUN = "ticklake.run"
"""The table property that names the run."""
# A table from before that property tells its run by its commits. The newest are enough: most of them add rows.
_COMMITS = 20
# Reader version 2 is column mapping: files have other names for the columns than the table.
_READER_VERSIONS = (1, 3)
_READER_FEATURES = {"timestampNtz"}


def check_readable(delta: DeltaTable, directory: Path) -> None:
    """Raises `UnknownTableFormat` if rows are deleted elsewhere, or columns are, or have other names there."""
    protocol = delta.protocol()
    if unknown := sorted(set(protocol.reader_features or ()) - _READER_FEATURES):
        raise UnknownTableFormat(table=directory, reason=f"its readers must know {', '.join(unknown)}")
    if protocol.min_reader_version not in _READER_VERSIONS:
        raise UnknownTableFormat(table=directory, reason=f"it has Delta reader version {protocol.min_reader_version}")
    if columns := delta.metadata().partition_columns:
        raise UnknownTableFormat(table=directory, reason=f"it is partitioned by {', '.join(columns)}")


def named_key(delta: DeltaTable, directory: Path) -> tuple[str, ...]:
    """The columns that a table says are its key; none if it names none. Anybody may have set that property."""
    text = delta.metadata().configuration.get(KEY)
    if not text:
        return ()
    try:
        key = json.loads(text)
    except (ValueError, RecursionError):
        key = None
    if not isinstance(key, list) or not all(isinstance(name, str) for name in key):
        raise UnknownTableFormat(table=directory, reason=f"its {KEY} is no list of names: {text[:60]!r}")
    columns = [field.name for field in delta.schema().fields]
    if missing := [name for name in key if name not in columns]:
        raise UnknownTableFormat(table=directory, reason=f"its {KEY} names {missing[0]!r}, which is no column of it")
    if key and not is_counted_by(delta, key[0]):
        raise UnknownTableFormat(table=directory, reason=f"its {KEY} begins with {key[0]!r}, which has no integers")
    return tuple(key)


def check_run(delta: DeltaTable, directory: Path, run_id: str) -> None:
    """Raises `TableOfAnotherRun` if the table says that it is of another run than this one."""
    found = delta.metadata().configuration.get(RUN) or _run_of_commits(directory, int(delta.version()))
    require_run(directory, found or run_id, run_id)


def require_run(directory: Path, found: str, run_id: str) -> None:
    """Raises `TableOfAnotherRun` if the run that was found is not this one."""
    if found != run_id:
        reason = f"of run {found!r} and lies in the folder of run {run_id!r}"
        raise TableOfAnotherRun(table=directory, reason=reason)


def _run_of_commits(directory: Path, newest: int) -> str:
    """The run of the batch files that the newest commit with such files names; empty if none does."""
    for version in range(newest, max(-1, newest - _COMMITS), -1):
        if run := _run_of(read_commit(directory / "_delta_log", version) or b""):
            return run
    return ""


def _run_of(commit: bytes) -> str:
    """Anybody may have written a commit: what makes no sense names no run."""
    try:
        sources = json.loads(info_of(commit)[SOURCES])
        return str(sources[0]["file"]).partition("/")[0]
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""


def one_line(error: BaseException) -> str:
    """What delta-rs says first; below it come frames that nobody can read."""
    lines = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip().splitlines()
    return lines[0] if lines else type(error).__name__
