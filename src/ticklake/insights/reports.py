"""What is reported of runs, tables, groups and gaps: plain values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from ticklake.lives import at_tick
from ticklake.ticks import TickRange


@dataclass(frozen=True)
class FilesReport:
    """The batch files of a run. `completed`: the end of the run is recorded; None if its file cannot be read.

    `state` is running, ended, abandoned, deleting, or unknown if that file cannot be read. `last_tick` is the recorded
    one; -1 for a run that was abandoned before its first tick.
    """

    files: int
    bytes: int
    ticks: TickRange | None
    completed: bool | None
    error: str | None = None
    state: str = "unknown"
    last_tick: int | None = None
    format: str = ""
    """The format of the first file: TickLake, an era of the original, or unknown; empty without files."""

    @property
    def life(self) -> str:
        """The state with the recorded last tick."""
        if self.last_tick is None:
            return self.state
        return f"{self.state} {at_tick(self.last_tick)}"


@dataclass(frozen=True)
class TableReport:
    """A table of a run. `lag` is the distance from its newest tick to the newest batch file, if both are known.

    `missing` is the number of ranges of missing ticks before its newest tick; `missing_ticks` is the number of sampled
    ticks in them. Both are None if they are not known yet.
    """

    name: str
    rows: int | None = None
    files: int | None = None
    bytes: int | None = None
    ticks: TickRange | None = None
    lag: int | None = None
    error: str | None = None
    missing: int | None = None
    missing_ticks: int | None = None
    gone: bool = False
    """Whether a database knows of the table, and the lake does not have it."""


@dataclass(frozen=True)
class GroupReport:
    """A consumer group of a topic: its unacknowledged messages, and the age of the oldest one."""

    topic: str
    group: str
    lag: int
    claimed: int
    dead_letters: int
    oldest_seconds: float | None


@dataclass(frozen=True)
class GapsReport:
    """The gaps of one indexer class that uses a coordinator, and the age of the oldest gap."""

    indexer_class: str
    pending: int
    permanent: int
    oldest_seconds: float


@dataclass(frozen=True)
class CoordinatedReport:
    """The batch files that indexers with a coordinator have not completed for one table, without failed ones.

    `ticks` are the sampled ticks that their names promise. `in_work` is the number of files that an indexer works on
    now. `oldest_seconds` is the age of the file with the lowest ticks; None if the storage does not know it.
    """

    indexer_class: str
    table: str
    files: int = 0
    ticks: int = 0
    in_work: int = 0
    oldest_seconds: float | None = None


@dataclass(frozen=True)
class Announcement:
    """The newest announced batch file: its ticks, and the age of its message in seconds."""

    topic: str
    ticks: TickRange
    seconds: float


@dataclass(frozen=True)
class RunReport:
    """The report of one run. `error`: why a part of it could not be read; the rest is reported."""

    run_id: str
    started_at: datetime | None
    storage: FilesReport | None = None
    tables: list[TableReport] = field(default_factory=list)
    groups: list[GroupReport] = field(default_factory=list)
    error: str | None = None
    coordinated: list[CoordinatedReport] = field(default_factory=list)

    @property
    def errors(self) -> list[str]:
        """What could not be read, except tables."""
        return [one for one in (self.error, self.storage.error if self.storage else None) if one]


@dataclass(frozen=True)
class Glance:
    """A run at one moment. Its cost does not grow with the history: no batch files are listed.

    `errors`: why a place could not be read. What the others have is here; figures of all places together are unknown.
    """

    run_id: str
    at: float
    tables: list[TableReport]
    groups: list[GroupReport]
    gaps: list[GapsReport]
    held_back: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    coordinated: list[CoordinatedReport] = field(default_factory=list)
    """The indexers with a coordinator and no consumer group. How many files they have left is not counted here."""

    def with_files(self, counted: Sequence[CoordinatedReport] | None) -> Glance:
        """Returns the glance with these counts of the files that coordinated tables need; None: nothing is known."""
        if counted is None:
            return replace(self, coordinated=[])
        found = {(one.indexer_class, one.table): one for one in counted}
        return replace(self, coordinated=[found.get((one.indexer_class, one.table), one) for one in self.coordinated])

    @property
    def missing(self) -> int | None:
        """The number of missing ranges or gaps of the table that has most of them.

        None if it is not known: no table is known to lack ticks, but some were not searched yet.
        """
        found = [one.pending + one.permanent for one in self.gaps]
        found += [one.missing for one in self.tables if one.missing is not None]
        unknown = any(one.missing is None and (one.ticks or one.error or one.rows is None) for one in self.tables)
        worst = max(found, default=None)
        return None if (unknown or self.errors) and not worst else worst

    @property
    def dead_letters(self) -> int | None:
        """The number of dead letters of all groups; None without groups, or if a place may have some."""
        found = sum(one.dead_letters for one in self.groups)
        return None if (self.errors or not self.groups) and not found else found


def merged_groups(groups: Iterable[GroupReport]) -> tuple[GroupReport, ...]:
    """Merges the reports of groups whose topic is in two databases."""
    found: dict[tuple[str, str], GroupReport] = {}
    for one in groups:
        key = one.topic, one.group
        found[key] = _merged(found[key], one) if key in found else one
    return tuple(found.values())


def _merged(one: GroupReport, other: GroupReport) -> GroupReport:
    ages = [age for age in (one.oldest_seconds, other.oldest_seconds) if age is not None]
    return GroupReport(
        one.topic,
        one.group,
        one.lag + other.lag,
        one.claimed + other.claimed,
        one.dead_letters + other.dead_letters,
        max(ages, default=None),
    )
