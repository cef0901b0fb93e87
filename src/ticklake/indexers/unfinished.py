"""Finds the runs of a storage that have work for a consumer group. Thousands of finished runs cost almost nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from fnmatch import fnmatchcase

from ticklake.database import OUTAGES
from ticklake.errors import TickLakeError
from ticklake.monitoring import Monitor
from ticklake.storage import Storage
from ticklake.topics import Database, Run

log = logging.getLogger(__name__)

ALL, NEWEST = "all", "newest"
SLICE = 200
"""Checks at most this many unchanged runs in one look, so that its cost does not grow with their number."""
WARM_SECONDS = 60.0
"""Asks again after a change: a batch file appears in the storage a moment before its message."""

HasWork = Callable[[Run], bool]


_ABSENT = "not in the database"


class Unfinished:
    """The runs that have work. The newest ones are found first."""

    def __init__(self, storage: Storage, database: Database, wanted: str, has_work: HasWork, monitor: Monitor) -> None:
        """`wanted`: all, newest, or a pattern such as `202611*`."""
        self._storage, self._database, self._monitor = storage, database, monitor
        self._wanted = wanted
        self._has_work = has_work
        self._stamps: dict[str, object] = {}
        self._warm: dict[str, float] = {}
        self._next = 0
        self._looked = False
        self._listed: frozenset[str] = frozenset()
        self._unreadable: dict[str, str] = {}

    def look(self, now: float, busy: Collection[str]) -> list[str]:
        """Returns runs with work, without those in `busy`."""
        self._listed = frozenset(listed := self._storage.runs())
        runs = self._wanted_of(listed)
        known = frozenset(runs)
        self._stamps = {run_id: stamp for run_id, stamp in self._stamps.items() if run_id in known}
        due = self._due([run_id for run_id in reversed(runs) if run_id not in busy], now)
        stamps = self._database.stamps(due)
        found = [run_id for run_id in due if self._check(run_id, stamps.get(run_id, _ABSENT), now)]
        self._looked = True
        return found

    def ask_again(self, run_id: str, now: float) -> None:
        """The next looks check this run, even if nothing has changed."""
        self._warm[run_id] = now

    def gone(self, run_ids: Collection[str]) -> set[str]:
        """Returns those of these runs that the storage does not have any more: they were deleted."""
        return set(run_ids) - self._listed

    def _wanted_of(self, runs: list[str]) -> list[str]:
        if self._wanted == ALL:
            return runs
        if self._wanted == NEWEST:
            return runs[-1:]
        return [run_id for run_id in runs if fnmatchcase(run_id, self._wanted)]

    def _due(self, runs: list[str], now: float) -> list[str]:
        """Runs that changed lately, runs that were never checked, and a slice of the others."""
        self._warm = {run_id: since for run_id, since in self._warm.items() if now - since < WARM_SECONDS}
        warm = [run_id for run_id in runs if run_id in self._warm]
        new = [run_id for run_id in runs if run_id not in self._stamps and run_id not in self._warm]
        calm = [run_id for run_id in runs if run_id in self._stamps and run_id not in self._warm]
        start = self._next if self._next < len(calm) else 0
        self._next = start + SLICE
        return [*warm, *new[:SLICE], *calm[start : start + SLICE]]

    def _check(self, run_id: str, stamp: object, now: float) -> bool:
        """Asks the run for work if something was written to it."""
        is_new, before = run_id not in self._stamps, self._stamps.get(run_id)
        self._stamps[run_id] = stamp
        changed = stamp is None or stamp != before
        if changed and (self._looked or not is_new):
            self._warm[run_id] = now
        due = stamp != _ABSENT and (changed or run_id in self._warm)
        return due and self._ask_if_readable(run_id, is_settled=stamp is not None)

    def _ask_if_readable(self, run_id: str, *, is_settled: bool) -> bool:
        try:
            found = self._ask(run_id)
        except OUTAGES:
            del self._stamps[run_id]
            raise
        except TickLakeError as error:
            if is_settled:  # otherwise its tables may just be created
                self._report(run_id, error)
            return False
        self._unreadable.pop(run_id, None)
        return found

    def _ask(self, run_id: str) -> bool:
        branch = self._database.branch()
        try:
            return self._has_work(branch.run(run_id, create=False))
        finally:
            branch.close()

    def _report(self, run_id: str, error: TickLakeError) -> None:
        if self._unreadable.get(run_id) != str(error):
            self._unreadable[run_id] = str(error)
            self._monitor.errors.record("RUN_UNREADABLE", error, run_id)
            log.warning("Cannot check run %s for work: %s", run_id, error)


def unacknowledged(run: Run, topic: str, group: str) -> bool:
    """Returns whether the group has messages left, or has not joined a topic that has messages."""
    if not run.has_tables_of("ticklake.topics"):
        return False
    for status in run.groups.list(topic):
        if status.group == group:
            return status.lag > 0
    return bool(run.browse(topic, limit=1))
