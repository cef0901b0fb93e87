"""Which run a table is of: its property says so, or else the batch files that its commits name."""

from __future__ import annotations

import json
from pathlib import Path

from deltalake import DeltaTable

from ticklake.lake.delta.commits import SOURCES, info_of, read_commit
from ticklake.lake.errors import TableOfAnotherRun

RUN = "ticklake.run"
"""The table property that names the run."""

# A table from before that property tells its run by its commits. The newest are enough: most of them add rows.
_COMMITS = 20


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
