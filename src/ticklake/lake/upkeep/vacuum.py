"""Vacuum: finds and removes files that no version of a table within the retention needs.

These are files that a compaction or a removal has replaced, and files of flushes that were never committed. The file
system gives the age of files and commits.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ticklake import faults
from ticklake.lake.delta import (
    Commit,
    DeltaError,
    Location,
    TableFile,
    TableFolder,
    check_intact,
    decode_commit,
    durable_version,
    files_of,
    is_checkpoint,
    is_commit,
    old_checkpoints,
    open_of_run,
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

    file: TableFile
    size: int


def check_retention(older_than: float, *, force: bool) -> None:
    """Raises `RetentionTooShort` if files would be removed that may be in use."""
    if older_than < SHORTEST_RETENTION and not force:
        raise RetentionTooShort(hours=older_than / 3600, shortest=SHORTEST_RETENTION / 3600)


class Vacuum:
    """Vacuum of one table of a run. The table can be indexed, compacted and read meanwhile."""

    def __init__(
        self,
        location: Location,
        run_id: str,
        older_than: float = RETENTION,
        *,
        force: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        check_retention(older_than, force=force)
        self._location, self._run_id = location, run_id
        self._older_than = older_than
        self._clock = clock
        self._id = ""

    def find(self) -> list[Garbage]:
        """Returns the files that can be removed now. Reads names, ages, and the commits within the retention."""
        cutoff = self._clock() - self._older_than
        self._id, live = self._live()
        needed = live | self._removed_since(cutoff)
        names = self._location.names()
        data = (name for name in names if name.endswith(".parquet") and name not in needed)
        left, left_in_log = (filter(_LEFTOVER.fullmatch, some) for some in (names, self._location.log_names()))
        with TableFolder(self._location) as folder:
            old = old_checkpoints(folder)
        files = (self._location.file(name) for name in (*data, *left))
        log_files = (self._location.log_file(name) for name in (*left_in_log, *old))
        found = (_aged(file, cutoff) for file in (*files, *log_files))
        return sorted((one for one in found if one is not None), key=lambda one: one.file.path)

    def remove(self, garbage: Sequence[Garbage]) -> Iterator[Garbage]:
        """Removes these files, unless they have been committed since, or the table was replaced by another one."""
        for start in range(0, len(garbage), _AT_ONCE):
            with TableFolder(self._location) as folder, folder.removing():
                found, live = self._live()
                if found != self._id or not folder.is_here():
                    return
                old = set(old_checkpoints(folder))
                names = {one: one.file.name for one in garbage[start : start + _AT_ONCE]}
                gone = [
                    one
                    for one, name in names.items()
                    if name not in live
                    and (name in old or not (one.file == self._location.log_file(name) and is_checkpoint(name)))
                ]
                faults.reach("lake.vacuum.remove")
                for one in gone:
                    folder.remove(one.file.path)
            yield from gone

    def _live(self) -> tuple[str, set[str]]:
        """Returns the table's id, and the names of its files."""
        try:
            with TableFolder(self._location) as folder:
                states = folder.states(durable_version(folder))
                # Files of a missing commit, or of one that is being copied, would look like garbage.
                check_intact(folder)
                delta = open_of_run(self._location, self._run_id)
                changed = [name for name, state in states.items() if folder.state(name) != state]
            if changed:
                raise TableUnreadable(table=self._location, reason=f"{changed[0]} has changed meanwhile. Try again")
            return str(delta.metadata().id), {file.name for file in files_of(delta, self._location)}
        except (DeltaError, OSError) as error:
            raise unreadable(self._location, error) from error

    def _removed_since(self, cutoff: float) -> set[str]:
        """Returns the files that were part of the table at some time since `cutoff`."""
        commits = map(self._location.log_file, filter(is_commit, self._location.log_names()))
        recent = (file for file in commits if file.facts().written >= cutoff)
        return {name for file in recent for name in _decoded(file).removes}


def _decoded(file: TableFile) -> Commit:
    try:
        return decode_commit(file.read(), "")
    except ValueError as error:
        raise DamagedCommit(file=str(file), reason=error) from error


def _aged(file: TableFile, cutoff: float) -> Garbage | None:
    try:
        facts = file.facts()
    except FileNotFoundError:
        return None
    return Garbage(file, facts.size) if facts.written < cutoff else None
