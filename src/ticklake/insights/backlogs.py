"""Finds what every run of the databases still has to do. Thousands of finished runs cost almost nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from ticklake.contracts import BatchInfo
from ticklake.coordination import PENDING, completed_batches, recorded_gaps
from ticklake.database import OUTAGES
from ticklake.database.errors import DatabaseDamaged, RunNotInDatabase
from ticklake.database.url import split_password
from ticklake.errors import TickLakeError
from ticklake.indexers.runs.turns import by_age
from ticklake.insights.files import WaitingFiles, merged_files
from ticklake.insights.reports import CoordinatedReport, GroupReport, merged_groups
from ticklake.logs import redacted
from ticklake.ticks import subtract

if TYPE_CHECKING:
    from ticklake.storage import Storage
    from ticklake.topics import Database, Run

OPENED = 200
"""Opens at most this many new runs, and this many changed ones, in one look."""
STAMPED = 2000
"""Asks at most this many unchanged runs for a change in one look."""
REFRESH_SECONDS = 300.0
"""Reads a run with a backlog again after this time, even without a change: claims expire."""
SLOW = 0.05
"""Reading a run is slow if it takes this many seconds: it has very many files or messages."""
REST = 9
"""After a slow run was read, none is read again for this many times as long. So they take a tenth of the time."""
MOST_OUTAGES = 3
"""After this many runs that do not answer, the database is away."""
NO_READER_SECONDS = 300.0
"""A message is this old before a group without a claim counts as a group without a reader."""
WORST = 20
"""Views name at most this many runs."""


@dataclass(frozen=True)
class Backlog:
    """What a run still has to do: groups with messages or dead letters, messages that no group reads, gaps, files.

    `held`: the groups of which a consumer holds a claim that has not expired. `coordinated`: the tables whose indexers
    have no topic, with the batch files that they have not completed.
    """

    run_id: str
    groups: tuple[GroupReport, ...] = ()
    unread: int = 0
    unread_seconds: float | None = None
    gaps_pending: int = 0
    gaps_permanent: int = 0
    held: frozenset[tuple[str, str]] = frozenset()
    coordinated: tuple[CoordinatedReport, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.groups or self.unread or self.gaps_pending or self.gaps_permanent or self.coordinated)

    @property
    def messages(self) -> int:
        """The unacknowledged messages of all groups together."""
        return sum(one.lag for one in self.groups)

    @property
    def dead_letters(self) -> int:
        return sum(one.dead_letters for one in self.groups)

    @property
    def files(self) -> int:
        """The batch files that coordinated tables still need. One that two tables need counts twice."""
        return sum(one.files for one in self.coordinated)

    @property
    def ticks(self) -> int:
        """The ticks of these files."""
        return sum(one.ticks for one in self.coordinated)

    @property
    def oldest_seconds(self) -> float | None:
        """The age of the oldest unacknowledged or unread message, or of the oldest of these files."""
        ages = [self.unread_seconds, *(one.oldest_seconds for one in self.groups)]
        ages += [one.oldest_seconds for one in self.coordinated]
        return max((age for age in ages if age is not None), default=None)

    @property
    def without_reader(self) -> list[GroupReport]:
        """The groups whose messages have waited for a while, and of which no consumer holds any."""
        return [
            one
            for one in self.groups
            if one.lag and (one.topic, one.group) not in self.held and (one.oldest_seconds or 0.0) > NO_READER_SECONDS
        ]

    @property
    def without_indexer(self) -> list[CoordinatedReport]:
        """The tables whose files have waited for a while, and of which no indexer works on any."""
        return [one for one in self.coordinated if not one.in_work and (one.oldest_seconds or 0.0) > NO_READER_SECONDS]

    @property
    def is_unread(self) -> bool:
        """Whether batch files have been announced for a while, and no group reads the messages."""
        return self.unread > 0 and (self.unread_seconds or 0.0) > NO_READER_SECONDS

    def after(self, seconds: float) -> Backlog:
        """Returns the backlog with ages that have grown since it was read."""
        groups = tuple(replace(one, oldest_seconds=_grown(one.oldest_seconds, seconds)) for one in self.groups)
        files = tuple(replace(one, oldest_seconds=_grown(one.oldest_seconds, seconds)) for one in self.coordinated)
        return replace(self, groups=groups, unread_seconds=_grown(self.unread_seconds, seconds), coordinated=files)

    def merged(self, other: Backlog) -> Backlog:
        """Returns both backlogs of a run whose topics are in two databases."""
        ages = [age for age in (self.unread_seconds, other.unread_seconds) if age is not None]
        return Backlog(
            self.run_id,
            merged_groups([*self.groups, *other.groups]),
            self.unread + other.unread,
            max(ages, default=None),
            self.gaps_pending + other.gaps_pending,
            self.gaps_permanent + other.gaps_permanent,
            self.held | other.held,
            merged_files([*self.coordinated, *other.coordinated]),
        )


@dataclass(frozen=True)
class BacklogReport:
    """The runs with a backlog, those with the oldest messages or files first.

    `unreadable`: a line for each run, or file, that cannot be read. `unchecked`: the number of runs that no look has
    read yet. `away`: databases that do not answer, and why. The figures do not include what these have.
    """

    runs: list[Backlog]
    unreadable: list[str]
    checked: int
    unchecked: int
    away: dict[str, str]

    def without(self, run_ids: Iterable[str]) -> BacklogReport:
        """Returns the report without these runs."""
        known = set(run_ids)
        return replace(self, runs=[one for one in self.runs if one.run_id not in known])

    def of(self, run_id: str) -> Backlog | None:
        return next((one for one in self.runs if one.run_id == run_id), None)

    def coordinated_of(self, run_id: str) -> tuple[CoordinatedReport, ...] | None:
        """Returns the coordinated tables of a run that still need files; None if the run may not have been read."""
        if found := self.of(run_id):
            return found.coordinated
        is_partial = self.unchecked or self.away or any(run_id in line for line in self.unreadable)
        return None if is_partial else ()

    @property
    def messages(self) -> int:
        return sum(one.messages for one in self.runs)

    @property
    def files(self) -> int:
        return sum(one.files for one in self.runs)

    @property
    def ticks(self) -> int:
        return sum(one.ticks for one in self.runs)

    @property
    def unread(self) -> int:
        return sum(one.unread for one in self.runs)

    @property
    def dead_letters(self) -> int:
        return sum(one.dead_letters for one in self.runs)

    @property
    def gaps_pending(self) -> int:
        return sum(one.gaps_pending for one in self.runs)

    @property
    def gaps_permanent(self) -> int:
        return sum(one.gaps_permanent for one in self.runs)

    @property
    def oldest_seconds(self) -> float | None:
        return max((one.oldest_seconds for one in self.runs if one.oldest_seconds is not None), default=None)


class Backlogs:
    """Looks at every run of the databases again and again. Only runs that were written to are opened."""

    def __init__(
        self,
        databases: Callable[[], Sequence[Database]],
        clock: Callable[[], float] = time.monotonic,
        storages: Sequence[Storage] = (),
    ) -> None:
        """Without `storages`, the files that indexers with a coordinator have left are not known."""
        self._databases, self._clock, self._storages = databases, clock, storages
        self._lock = threading.Lock()
        self._watched: dict[Database, _Watched] = {}

    def look(self) -> BacklogReport:
        """Reads the runs that have changed, and some of those that were never read, the newest first."""
        with self._lock:
            now = self._clock()
            databases = list(self._databases())
            self._watched = {one: self._watched.get(one) or self._watch(one) for one in databases}
            away = {}
            for database, watched in self._watched.items():
                try:
                    watched.look(now)
                except (TickLakeError, OSError) as error:
                    away[split_password(database.url)[0]] = _line(error)
            return self._report(now, away)

    def _watch(self, database: Database) -> _Watched:
        return _Watched(database, self._storages, self._clock)

    def look_at_all(self, seconds: float) -> BacklogReport:
        """Looks until every run was read, for at most about `seconds`. `unchecked` is the number of the others."""
        end, before = self._clock() + seconds, -1
        report = self.look()
        while report.unchecked and report.checked > before and not report.away and self._clock() < end:
            before = report.checked
            report = self.look()
        return report

    def _report(self, now: float, away: dict[str, str]) -> BacklogReport:
        found: dict[str, Backlog] = {}
        unreadable: list[str] = []
        watched = self._watched.items()
        answering = [one for database, one in watched if split_password(database.url)[0] not in away]
        for one in answering:
            unreadable += one.unreadable
            for run_id, backlog in one.backlogs(now):
                found[run_id] = found[run_id].merged(backlog) if run_id in found else backlog
        return BacklogReport(
            sorted(found.values(), key=_badness, reverse=True),
            unreadable,
            sum(one.checked for one in answering),
            sum(one.unchecked for one in answering),
            away,
        )


class _Seen(NamedTuple):
    """The stamp of a run, and when it was read. None: it is read again, whatever its stamp is.

    `is_slow`: reading it took long.
    """

    stamp: object
    at: float
    is_slow: bool = False


class _Watched:
    """One database. Keeps a stamp of every run, and the backlog of those that have one."""

    def __init__(self, database: Database, storages: Sequence[Storage], clock: Callable[[], float]) -> None:
        self._database, self._files, self._clock = database, WaitingFiles(storages), clock
        self._rests_until = float("-inf")
        self._seen: dict[str, _Seen] = {}
        self._found: dict[str, Backlog] = {}
        self._failed: dict[str, str] = {}
        self._next = 0
        self.unchecked = 0

    @property
    def checked(self) -> int:
        return len(self._seen)

    @property
    def unreadable(self) -> list[str]:
        damaged = [" ".join(text.split()) for text in self._database.damaged]
        return [*(f"run {run_id}: {text}" for run_id, text in self._failed.items()), *damaged]

    def backlogs(self, now: float) -> Iterable[tuple[str, Backlog]]:
        for run_id, backlog in self._found.items():
            yield run_id, backlog.after(now - self._seen[run_id].at)

    def look(self, now: float) -> None:
        runs = self._database.runs()
        self._forget_others(frozenset(runs))
        unseen = (run_id for run_id in runs if run_id not in self._seen)
        new = sorted(unseen, key=by_age, reverse=True)
        self.unchecked = len(new)
        first = new[:OPENED]
        asked = [*first, *self._asked(runs)]
        stamps = self._stamps(asked)
        changed = sorted(
            (run_id for run_id in asked[len(first) :] if self._has_changed(run_id, stamps.get(run_id), now)),
            key=lambda run_id: self._seen[run_id].at,
        )
        for run_id in changed[OPENED:]:
            self._seen[run_id] = self._seen[run_id]._replace(stamp=None)
        outages = 0
        for run_id in [*first, *changed[:OPENED]]:
            if self._is_resting(run_id):
                continue  # what is known of it stays
            try:
                self._check(run_id, stamps.get(run_id), now)
            except OUTAGES as error:
                outages += 1
                if outages == MOST_OUTAGES:
                    raise
                # What is known of it stays, with the time at which it was read: its age goes on growing.
                read_at = self._seen[run_id].at if run_id in self._found else now
                self._failed[run_id], self._seen[run_id] = _line(error), _Seen(None, read_at)
        self.unchecked = len(runs) - len(self._seen)

    def _stamps(self, runs: Sequence[str]) -> dict[str, object]:
        """Returns what changes if a run changes in the database, or gets a file that a coordinator must hand out."""
        found = {run_id: (stamp, self._files.stamp(run_id)) for run_id, stamp in self._database.stamps(runs).items()}
        return {run_id: None if None in both else both for run_id, both in found.items()}

    def _asked(self, runs: Sequence[str]) -> list[str]:
        """Returns runs that are busy or have a backlog, and a part of the others."""
        busy = [run_id for run_id, seen in self._seen.items() if seen.stamp is None or run_id in self._found]
        known = set(busy)
        calm = [run_id for run_id in runs if run_id in self._seen and run_id not in known]
        start = self._next if self._next < len(calm) else 0
        self._next = start + STAMPED
        return [*busy, *calm[start : start + STAMPED]]

    def _has_changed(self, run_id: str, stamp: object, now: float) -> bool:
        seen = self._seen[run_id]
        return stamp is None or stamp != seen.stamp or (run_id in self._found and now - seen.at > REFRESH_SECONDS)

    def _check(self, run_id: str, stamp: object, now: float) -> None:
        """Reads a run. If that fails while its tables may just be created, the run counts as not read yet."""
        backlog, problem = None, None
        started = self._clock()
        try:
            backlog = self._read(run_id)
        except RunNotInDatabase:
            return self._forget_others(self._seen.keys() - {run_id})
        except OUTAGES:
            raise
        except (TickLakeError, OSError) as error:
            if stamp is None and not isinstance(error, DatabaseDamaged):
                return self._forget_others(self._seen.keys() - {run_id})
            problem = _line(error)
        ended = self._clock()
        is_slow = ended - started >= SLOW
        if is_slow:
            self._rests_until = ended + REST * (ended - started)
        self._seen[run_id] = _Seen(stamp, now, is_slow)
        self._failed.pop(run_id, None)
        self._found.pop(run_id, None)
        if backlog:
            self._found[run_id] = backlog
        if problem is not None:
            self._failed[run_id] = problem
        return None

    def _is_resting(self, run_id: str) -> bool:
        seen = self._seen.get(run_id)
        return seen is not None and seen.is_slow and self._clock() < self._rests_until

    def _read(self, run_id: str) -> Backlog | None:
        with self._database.branch() as branch:
            return backlog_of(branch.run(run_id, create=False), self._files)

    def _forget_others(self, runs: AbstractSet[str]) -> None:
        for run_id in [one for one in self._seen if one not in runs]:
            del self._seen[run_id]
            self._found.pop(run_id, None)
            self._failed.pop(run_id, None)


def backlog_of(run: Run, files: WaitingFiles | None = None) -> Backlog | None:
    """Reads what a run still has to do; None if it has no topics. Creates and upgrades nothing."""
    if not run.has_tables_of("ticklake.topics"):
        return None
    listed = run.groups.list()
    behind = [one for one in listed if one.lag or one.dead_letters]
    gaps = recorded_gaps(run)
    if gaps and files:
        excused = files.never_written(run.id)
        gaps = [one for one in gaps if subtract([one.ticks], excused, 1)]
    pending = sum(one.status == PENDING for one in gaps)
    unread, age_ms = _unread(run, {one.topic for one in listed})
    return Backlog(
        run.id,
        tuple(GroupReport(one.topic, one.group, one.lag, one.claimed, one.dead_letters, _seconds(one.oldest_ms))
              for one in behind),
        unread,
        _seconds(age_ms),
        pending,
        len(gaps) - pending,
        _held(run) if any(one.lag for one in behind) else frozenset(),
        tuple(one for one in files.of(run) if one.files) if files else (),
    )  # fmt: skip


def _unread(run: Run, read: set[str]) -> tuple[int, int | None]:
    """Returns the number of messages in topics of batch files that no group reads, and the age of the oldest.

    Messages of files that an indexer has taken from the storage instead do not count. If it has taken some, the age
    is that of the newest message, because it is not known which one is the oldest of the rest.
    """
    topics = [name for name in run.topic_names() if name not in read and _announces_batches(run, name)]
    if not topics:
        return 0, None
    found = [one for one in run.topics() if one.topic in topics]
    completed = completed_batches(run)
    unread = max(0, sum(one.messages for one in found) - completed)
    times = [one.last_ms if completed else one.first_ms for one in found]
    since = min((one for one in times if one is not None), default=None)
    return unread, None if since is None or not unread else max(0, run.now_ms() - since)


def _announces_batches(run: Run, topic: str) -> bool:
    opened = [message.opened() for message in run.browse(topic, limit=1)]
    return any(one is not None and isinstance(one.payload, BatchInfo) for one in opened)


def _held(run: Run) -> frozenset[tuple[str, str]]:
    stuck = {(one.topic, one.group, one.message_id) for one in run.claims.list(stuck=True, limit=None)}
    claims = run.claims.list(limit=None)
    return frozenset((one.topic, one.group) for one in claims if (one.topic, one.group, one.message_id) not in stuck)


def _badness(backlog: Backlog) -> tuple[float, int, int]:
    gaps = backlog.gaps_pending + backlog.gaps_permanent
    return backlog.oldest_seconds or 0.0, backlog.messages + backlog.files + backlog.dead_letters, gaps


def _grown(age: float | None, seconds: float) -> float | None:
    return None if age is None else age + seconds


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _line(error: Exception) -> str:
    return redacted(" ".join(str(error).split()))
