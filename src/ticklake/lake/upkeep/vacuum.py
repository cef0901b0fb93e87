"""Vacuum: finds and removes files that no version of a table within the retention needs.

These are files that a compaction or a removal has replaced, and files of flushes that were never committed. The file
system gives the age of files and commits.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ticklake import faults
from ticklake.lake.delta import (
    Commit,
    DeltaError,
    TableFolder,
    check_intact,
    decode_commit,
    durable_version,
    is_checkpoint,
    is_commit,
    old_checkpoints,
    open_of_run,
    paths_of,
    unreadable,
)
from ticklake.lake.errors import DamagedCommit, RetentionTooShort, TableUnreadable

RETENTION = 7 * 86_400.0
"""Seconds for which unneeded files are kept, because a query that started earlier may still read them."""
SHORTEST_RETENTION = 86_400.0

# The number of files removed at a time, because commits have to wait meanwhile.
_AT_ONCE = 200
# Temporary files of TickLake, of delta-rs and of its object store; commits and checkpoints that were set aside.
_LEFTOVER = re.compile(r"\..*\.tmp|_commit_.*\.tmp|.*#\d+|.*\.torn")


@dataclass(frozen=True)
class Garbage:
    """A file that can be removed."""

    path: Path
    size: int


def check_retention(older_than: float, *, force: bool) -> None:
    """Raises `RetentionTooShort` if files would be removed that may be in use."""
    if older_than < SHORTEST_RETENTION and not force:
        raise RetentionTooShort(hours=older_than / 3600, shortest=SHORTEST_RETENTION / 3600)


class Vacuum:
    """Vacuum of one table of a run. The table can be indexed, compacted and read meanwhile."""

    def __init__(
        self,
        directory: Path,
        run_id: str,
        older_than: float = RETENTION,
        *,
        force: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        check_retention(older_than, force=force)
        self._directory, self._run_id = directory, run_id
        self._log = directory / "_delta_log"
        self._older_than = older_than
        self._clock = clock
        self._id = ""

    def find(self) -> list[Garbage]:
        """Returns the files that can be removed now. Reads names, ages, and the commits within the retention."""
        cutoff = self._clock() - self._older_than
        self._id, live = self._live()
        needed = live | self._removed_since(cutoff)
        data = (path for path in self._directory.glob("*.parquet") if path.name not in needed)
        left = (path for folder in (self._directory, self._log) for path in _leftovers(folder))
        with TableFolder(self._directory) as folder:
            old = [self._log / name for name in old_checkpoints(folder)]
        found = (_aged(path, cutoff) for path in (*data, *left, *old))
        return sorted((one for one in found if one is not None), key=lambda one: one.path)

    def remove(self, garbage: Sequence[Garbage]) -> Iterator[Garbage]:
        """Removes these files, unless they have been committed since, or the table was replaced by another one."""
        for start in range(0, len(garbage), _AT_ONCE):
            with TableFolder(self._directory) as folder, folder.removing():
                found, live = self._live()
                if found != self._id or not folder.is_here():
                    return
                old = set(old_checkpoints(folder))
                names = {one: one.path.name for one in garbage[start : start + _AT_ONCE]}
                gone = [
                    one
                    for one, name in names.items()
                    if name not in live and (name in old or not (one.path.parent == self._log and is_checkpoint(name)))
                ]
                faults.reach("lake.vacuum.remove")
                for one in gone:
                    folder.remove(str(one.path.relative_to(self._directory)))
            yield from gone

    def _live(self) -> tuple[str, set[str]]:
        """Returns the table's id, and the names of its files."""
        try:
            with TableFolder(self._directory) as folder:
                states = folder.states(durable_version(folder))
                # Files of a missing commit, or of one that is being copied, would look like garbage.
                check_intact(folder)
                delta = open_of_run(self._directory, self._run_id)
                changed = [name for name, state in states.items() if folder.state(name) != state]
            if changed:
                raise TableUnreadable(table=self._directory, reason=f"{changed[0]} has changed meanwhile. Try again")
            return str(delta.metadata().id), {path.name for path in paths_of(delta, self._directory)}
        except (DeltaError, OSError) as error:
            raise unreadable(self._directory, error) from error

    def _removed_since(self, cutoff: float) -> set[str]:
        """Returns the files that were part of the table at some time since `cutoff`."""
        recent = (path for path in self._log.glob("*.json") if is_commit(path.name) and path.stat().st_mtime >= cutoff)
        return {name for path in recent for name in _decoded(path).removes}


def _decoded(path: Path) -> Commit:
    try:
        return decode_commit(path.read_bytes(), "")
    except ValueError as error:
        raise DamagedCommit(file=str(path), reason=error) from error


def _leftovers(folder: Path) -> Iterator[Path]:
    return (path for path in folder.iterdir() if _LEFTOVER.fullmatch(path.name))


def _aged(path: Path, cutoff: float) -> Garbage | None:
    try:
        facts = path.stat()
    except FileNotFoundError:
        return None
    return Garbage(path, facts.st_size) if facts.st_mtime < cutoff else None
