"""Tells which runs have work for an indexer: messages of a topic, or batch files that a coordinator does not know."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from ticklake.coordination import End, Target, files_left, recorded_end
from ticklake.database.errors import RunNotInDatabase
from ticklake.lives import RunState, life_of
from ticklake.storage import Storage, parse_batch_name
from ticklake.topics import Database, Run

SETTLE_NS = 2_000_000_000
"""Two changes of a folder can leave the same time. So a time is trusted only if it is this old."""
LIST_SECONDS = 60.0
"""How often a run is listed in a storage that has no times of changes."""

HasWork = Callable[[Run], bool]
TableOf = Callable[[str], Target | None]
"""Returns the table that an indexer fills for a run; None if there is none yet."""


class Messages:
    """Runs whose messages a consumer group has not acknowledged."""

    asks_again: ClassVar[bool] = True

    def __init__(self, database: Database, has_work: HasWork) -> None:
        self._database, self._has_work = database, has_work

    def stamps(self, run_ids: Sequence[str]) -> Mapping[str, object]:
        return self._database.stamps(run_ids)

    def is_left(self, run_id: str) -> bool:
        with self._database.branch() as branch:
            return self._has_work(branch.run(run_id, create=False))


class Folders:
    """Lists the batch files of runs. The times of their folders say whether a run may have new files."""

    def __init__(self, storage: Storage, clock: Callable[[], float] = time.time) -> None:
        self._storage, self._clock = storage, clock
        self._known: dict[str, list[str]] = {}

    def names(self, run_id: str) -> list[str]:
        """Lists the batch files of a run. Remembers the folders in which files can appear."""
        waiting, names = [run_id], list[str]()
        for folder in waiting:
            folders, files = self._storage.entries(folder)
            waiting += [f"{folder}/{one}" for one in folders]
            below = folder[len(run_id) + 1 :]
            names += [f"{below}/{one}".lstrip("/") for one in files if parse_batch_name(one) is not None]
        self._known[run_id] = waiting
        return names

    def stamp(self, run_id: str, *, is_over: bool = False) -> object:
        """Returns a value that changes after a file was added; None if one may have been added just now.

        `is_over`: the run gets no more files, so a storage without times need not list it again.
        """
        try:
            times = [self._storage.changed_at(one) for one in self._known.get(run_id, [run_id])]
        except OSError:
            return None  # it is being deleted, or a disk is away: asking it finds out
        if None in times:
            return is_over or self._clock() // LIST_SECONDS
        age = int(self._clock() * 1e9) - max(time for time in times if time is not None)
        return None if abs(age) < SETTLE_NS else tuple(times)

    def forget(self, run_id: str) -> None:
        """Forgets all folders of a run but the first."""
        self._known.pop(run_id, None)


class Files:
    """Runs with batch files that indexers of one class have not completed, or whose end they have not recorded.

    A new file changes the time of its folder. So an unchanged run costs one system call for each of its folders, or one
    if it has ended and is complete. In a storage without such times, a run that has not ended is listed once a minute.
    """

    asks_again: ClassVar[bool] = False

    def __init__(
        self,
        storage: Storage,
        database: Database,
        indexer_class: str,
        table_of: TableOf,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._storage, self._database, self._folders = storage, database, Folders(storage, clock)
        self._indexer_class, self._table_of = indexer_class, table_of
        self._ended: set[str] = set()

    def stamps(self, run_ids: Sequence[str]) -> Mapping[str, object]:
        return {run_id: self._folders.stamp(run_id, is_over=run_id in self._ended) for run_id in run_ids}

    def is_left(self, run_id: str) -> bool:
        end = self._storage.read_completion(run_id)  # before the listing, which then has all files of an ended run
        life = life_of(end)
        recorded = End(life.last_tick, life.never_written)
        is_left = self.count(run_id) > 0 or self._recorded_end(run_id) != recorded
        if end is not None and not is_left:
            self._folders.forget(run_id)
        # A run that was abandoned may go on: its producer was only silent, or it is closed at a later tick.
        if not is_left and life.state is RunState.ENDED:
            self._ended.add(run_id)
        else:
            self._ended.discard(run_id)
        return is_left

    def count(self, run_id: str) -> int:
        """Returns the number of files of a run that are not completed. Failed files do not count."""
        names, table = self._folders.names(run_id), self._table_of(run_id)
        if not names or table is None:
            return len(names)
        try:
            with self._database.branch() as branch:
                return len(files_left(branch.run(run_id, create=False), self._indexer_class, table, names).names)
        except RunNotInDatabase:
            return len(names)

    def _recorded_end(self, run_id: str) -> End:
        table = self._table_of(run_id)
        if table is None:
            return End()
        try:
            with self._database.branch() as branch:
                return recorded_end(branch.run(run_id, create=False), self._indexer_class, table)
        except RunNotInDatabase:
            return End()


def unacknowledged(run: Run, topic: str, group: str) -> bool:
    """Returns whether the group has messages left, or has not joined a topic that has messages."""
    if not run.has_tables_of("ticklake.topics"):
        return False
    for status in run.groups.list(topic):
        if status.group == group:
            return status.lag > 0
    return bool(run.browse(topic, limit=1))
