"""Finds the runs of a storage that have work for a consumer group. Thousands of finished runs cost almost nothing."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator
from fnmatch import fnmatchcase

from ticklake.database import OUTAGES
from ticklake.database.errors import DatabaseUnavailable, TransactionAborted
from ticklake.defaults import NEWEST
from ticklake.indexers.batches import Pending
from ticklake.indexers.runs.turns import by_age
from ticklake.monitoring import Monitor
from ticklake.storage import Storage
from ticklake.text import error_text
from ticklake.topics.errors import SchemaOutdated

log = logging.getLogger(__name__)

ALL = "all"
SLICE = 200
"""Checks at most this many unchanged runs in one look, so that its cost does not grow with their number."""
RECENT = 20
"""Each look checks this many of the newest runs: their producers may write again."""
WARM_SECONDS = 60.0
"""Asks again after a change: a batch file appears in the storage a moment before its message."""
FIRST_PAUSE = 1.0
"""The pause between the first two questions to a run that is not among the newest."""
RETRY_SECONDS = 10.0
"""Asks again after this time if the file of one run did not answer."""

NEW_SECONDS = 0.5
"""A look spends this long on runs that were never checked. The next looks check the others."""
SETTLE_SECONDS = 2.0
"""Lists the storage again until its time has been the same for this long: two changes may leave the same time."""
LIST_SECONDS = 60.0
"""Lists the storage again after this time, even if its time is the same."""

_ABSENT = "not in the database"


class Unfinished:
    """The runs that have work. The newest ones are found first."""

    def __init__(self, storage: Storage, pending: Pending, wanted: str, monitor: Monitor) -> None:
        """`wanted`: all, newest, or a pattern such as `202611*`."""
        self._storage, self._pending, self._monitor = storage, pending, monitor
        self._wanted = wanted
        self._stamps: dict[str, object] = {}
        self._warm: dict[str, float] = {}
        self._asked: dict[str, float] = {}
        self._recent: frozenset[str] = frozenset()
        self._not_before: dict[str, float] = {}
        self._next = 0
        self._stored = _Listing(storage)
        self._seen: list[str] | None = None
        self._first: frozenset[str] | None = None
        self._finished: set[str] = set()
        self._unreadable: dict[str, str] = {}
        self.known: frozenset[str] = frozenset()
        """The runs that the storage had at the last look."""
        self.newest: str | None = None
        """The newest of these runs that is wanted."""
        self.complete = False
        """Whether all runs were checked since the last one with work was found."""

    def look(self, now: float, busy: Collection[str]) -> list[str]:
        """Returns runs with work, without those in `busy`. If the database does not answer, the next look repeats."""
        stored = self._stored.newest_first(now)
        if stored is not self._seen:
            self._seen = stored
            self._forget_all_but(frozenset(stored))
        selected = self._select(stored)
        self.newest = next(iter(selected), None)
        runs = [run_id for run_id in selected if run_id not in busy]
        due, new = self._due(runs, now)
        stamps = self._pending.stamps([*due, *new])
        found: list[str] = []
        checked: list[str] = []
        try:
            for run_id in _in_time(due, new):
                checked.append(run_id)
                if self._check(run_id, stamps.get(run_id, _ABSENT), now):
                    found.append(run_id)
        except DatabaseUnavailable:
            for run_id in found:
                del self._stamps[run_id]
            raise
        self._count_as_finished(checked, found, busy)
        self.complete = self._finished.issuperset(runs)
        return sorted(found, key=by_age, reverse=True)

    def ask_again(self, run_id: str, at: float) -> None:
        """Asks this run at that time, and a few times after it, even if nothing has changed."""
        self._warm[run_id] = at
        self._asked.pop(run_id, None)

    def was_there_first(self, run_id: str) -> bool:
        """Returns whether the first look has seen this run."""
        return self._first is not None and run_id in self._first

    def is_finished(self, run_id: str) -> bool:
        """Returns whether one of the last looks found no work for this run, or the storage does not have it."""
        return run_id in self._finished or run_id not in self.known

    def _count_as_finished(self, checked: Collection[str], found: Collection[str], busy: Collection[str]) -> None:
        if found:
            self._finished.clear()
            return
        self._finished.update(checked)
        planned = (run_id for run_id in self._warm if run_id not in self._asked)
        self._finished.difference_update(busy, self._not_before, planned)

    def _select(self, runs: list[str]) -> list[str]:
        if self._wanted == ALL:
            return runs
        if self._wanted == NEWEST:
            return runs[:1]
        return [run_id for run_id in runs if fnmatchcase(run_id, self._wanted)]

    def _forget_all_but(self, known: frozenset[str]) -> None:
        if self._first is None:
            self._first = known
        self.known = known
        self._stamps = {run_id: stamp for run_id, stamp in self._stamps.items() if run_id in known}
        self._unreadable = {run_id: text for run_id, text in self._unreadable.items() if run_id in known}

    def _due(self, runs: list[str], now: float) -> tuple[list[str], list[str]]:
        """Runs that changed lately, the newest ones and a slice of the others; and runs that were never checked."""
        self._warm = {run_id: since for run_id, since in self._warm.items() if now - since < WARM_SECONDS}
        self._asked = {run_id: at for run_id, at in self._asked.items() if run_id in self._warm}
        self._recent = frozenset(runs[:RECENT])
        self._not_before = {run_id: then for run_id, then in self._not_before.items() if then > now}
        askable = [run_id for run_id in runs if run_id not in self._not_before]
        warm = [run_id for run_id in askable if run_id in self._warm]
        new = [run_id for run_id in askable if run_id not in self._stamps and run_id not in self._warm]
        calm = [run_id for run_id in askable if run_id in self._stamps and run_id not in self._warm]
        recent, others = calm[:RECENT], calm[RECENT:]
        start = self._next if self._next < len(others) else 0
        self._next = start + SLICE - RECENT
        return [*warm, *recent, *others[start : self._next]], new[:SLICE]

    def _check(self, run_id: str, stamp: object, now: float) -> bool:
        """Asks the run for work if something was written to it."""
        is_new, before = run_id not in self._stamps, self._stamps.get(run_id)
        self._stamps[run_id] = stamp
        changed = stamp is None or stamp != before
        if changed and self._pending.asks_again and not (is_new and self.was_there_first(run_id)):
            self._warm[run_id] = now
        if stamp == _ABSENT or not (changed or self._is_due_again(run_id, now)):
            return False
        self._asked[run_id] = now
        return self._ask_if_readable(run_id, now, is_settled=stamp is not None)

    def _is_due_again(self, run_id: str, now: float) -> bool:
        """The newest runs are asked in each look, the others after pauses that double."""
        since = self._warm.get(run_id)
        if since is None or now < since:
            return False
        asked = self._asked.get(run_id)
        return asked is None or run_id in self._recent or now - asked >= max(FIRST_PAUSE, asked - since)

    def _ask_if_readable(self, run_id: str, now: float, *, is_settled: bool) -> bool:
        """Asks one run. A run that cannot be read hides no other; only a server that does not answer does."""
        try:
            found = self._pending.is_left(run_id)
        except DatabaseUnavailable:
            del self._stamps[run_id]
            raise
        except SchemaOutdated:
            return True  # whoever works on the run upgrades its tables, and finds out
        except Exception as error:  # a damaged file can lead to any error
            if isinstance(error, (*OUTAGES, TransactionAborted)):
                del self._stamps[run_id]
                self._not_before[run_id] = now + RETRY_SECONDS
            if is_settled:  # otherwise its tables may just be created
                self._report(run_id, error)
            return False
        self._unreadable.pop(run_id, None)
        return found

    def _report(self, run_id: str, error: Exception) -> None:
        text = error_text(error)
        if self._unreadable.get(run_id) != text:
            self._unreadable[run_id] = text
            self._monitor.errors.record("RUN_UNREADABLE", error, run_id)
            log.warning("Cannot check run %s for work: %s", run_id, text)


def _in_time(due: Collection[str], new: Collection[str]) -> Iterator[str]:
    yield from due
    deadline = time.monotonic() + NEW_SECONDS
    for run_id in new:
        yield run_id
        if time.monotonic() >= deadline:
            return


class _Listing:
    """The runs of a storage. Lists it only if it has changed: with 10,000 runs this takes most of a look."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._runs: list[str] = []
        self._time: object = None
        self._same_since = self._listed_at = float("-inf")

    def newest_first(self, now: float) -> list[str]:
        """Returns the same list as before if the storage has not changed."""
        found = self._changed_at()
        if found != self._time:
            self._time, self._same_since = found, now
        is_settled = found is not None and self._listed_at >= self._same_since + SETTLE_SECONDS
        if not is_settled or now - self._listed_at >= LIST_SECONDS:
            self._listed_at = now
            runs = sorted(self._storage.runs(), key=by_age, reverse=True)
            self._runs = self._runs if runs == self._runs else runs
        return self._runs

    def _changed_at(self) -> object:
        try:
            return self._storage.runs_changed_at()
        except OSError:
            return None  # there is no run yet; otherwise listing it raises the error
