"""Reads the reports from storage, lake and databases."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from ticklake.contracts import BatchInfo
from ticklake.coordination import PENDING, GapIndex, RecordedGap, recorded_gaps
from ticklake.defaults import NEWEST
from ticklake.insights.files import (
    coordinated_of,
    files_left_of,
    files_of,
    grid_in,
    merged_files,
    never_written,
    state_of,
)
from ticklake.insights.lake_tables import gone_tables, names_by_id
from ticklake.insights.reports import (
    Announcement,
    CoordinatedReport,
    GapsReport,
    Glance,
    GroupReport,
    RunReport,
    TableReport,
)
from ticklake.lake.errors import LakeUnreadable, TableUnreadable
from ticklake.separate_reads import Attempts
from ticklake.storage import run_started_at
from ticklake.storage.errors import NoRuns, RunNotFound
from ticklake.ticks import Grid, TickRange, merged, subtract
from ticklake.topics import runs_in

if TYPE_CHECKING:
    from ticklake.lake.read import Catalog, Presence
    from ticklake.storage import Storage
    from ticklake.topics import Database
    from ticklake.topics.store import OpenTransaction


GLANCE_SECONDS = 1.0
"""The longest time that a live view searches for missing ticks. The next search continues from there."""

LAST_MESSAGES = 100


@dataclass(frozen=True)
class Places:
    """The places that reports read. All are optional."""

    storage: Storage | None = None
    catalog: Catalog | None = None
    databases: Sequence[Database] = ()
    presence: Presence | None = None

    def known_runs(self, attempts: Attempts) -> list[str]:
        """Returns the runs of all places that can be read, the oldest first."""
        places = [place for place in (self.storage, self.catalog, *self.databases) if place is not None]
        found: set[str] = set()
        for place in places:
            found.update(attempts.read(place, place.runs) or [])
        return sorted(found)

    def states(self, runs: Sequence[str], attempts: Attempts) -> dict[str, str]:
        """Returns the states of those of these runs whose files can be read. Lists no files."""
        storage = self.storage
        known = frozenset((attempts.read(storage, storage.runs) if storage else None) or [])
        found = {run_id: state_of(storage, run_id) for run_id in runs if storage and run_id in known}
        return {run_id: state for run_id, state in found.items() if state is not None}

    def reports(self) -> Iterator[RunReport]:
        """Yields the report of every run. A run or a place that cannot be read hides no other."""
        attempts = Attempts()
        leaving = attempts.read(self.storage, self.storage.leaving_runs) if self.storage else None
        runs = sorted({*self.known_runs(attempts), *(leaving or [])})
        if not runs:
            attempts.raise_first()
        return (self._report(run_id, attempts) for run_id in runs)

    @property
    def unlisted(self) -> list[str]:
        """Why runs may be missing in the last list of runs: files of databases that cannot be read."""
        return [reason for one in self.databases for reason in one.damaged]

    def report(self, run_id: str | None) -> RunReport:
        """Returns the report of a run, with missing ticks. Default: the newest run of those that can be listed."""
        attempts = Attempts()
        found = self._report(self.chosen(run_id, attempts), attempts)
        if run_id is None and self.unlisted:
            errors = dict.fromkeys([*found.errors, *self.unlisted])
            found = replace(found, error=" ".join(errors))
        if self.presence is None or self.catalog is None:
            return found
        excused = self._excused(found.run_id)
        tables = with_missing(
            found.tables, self.catalog, found.run_id, self.presence, excused=excused, storage=self.storage
        )
        return replace(found, tables=tables)

    def gaps(self, run_id: str) -> list[GapsReport]:
        """Returns the open gaps of the tables of this lake; without a lake, of all tables."""
        catalogs = None if self.catalog is None else [self.catalog]
        return gaps_of(self.databases, run_id, catalogs, self.presence, self._excused(run_id))

    def glance(self, run_id: str | None, clock: Callable[[], float] = time.time) -> Glance:
        """Returns what a live view shows of a run. Default: the newest run. `at` is when the tables were read."""
        attempts = Attempts()
        chosen = self.chosen(run_id, attempts)
        unlisted = self.unlisted if run_id is None else []
        tables, at = attempts.read(self.catalog, lambda: self._tables(chosen)) or [], clock()
        tables += self.gone_tables(chosen, attempts)
        groups: list[GroupReport] = []
        gaps: list[GapsReport] = []
        held_back: list[str] = []
        coordinated: list[CoordinatedReport] = []
        for one in self.databases:
            place = replace(self, databases=[one])
            groups += attempts.read(one, partial(groups_of, [one], chosen)) or []
            gaps += attempts.read(one, partial(place.gaps, chosen)) or []
            held_back += map(str, attempts.read(one, partial(held_back_of, [one], chosen)) or [])
            if self.storage is not None:
                coordinated += attempts.read(one, partial(coordinated_of, [one], chosen)) or []
        errors = list(dict.fromkeys([*attempts.errors, *unlisted]))
        return Glance(chosen, at, tables, groups, gaps, held_back, errors, list(merged_files(coordinated)))

    def __str__(self) -> str:
        storage = self.storage.url if self.storage else None
        lake = str(self.catalog.root) if self.catalog else None
        databases = {0: None, 1: "the database"}.get(len(self.databases), f"{len(self.databases)} databases")
        return " and ".join(name for name in (storage, lake, databases) if name)

    def chosen(self, run_id: str | None, attempts: Attempts) -> str:
        """Returns the given run; by default the newest. If a place cannot be read, its error is raised instead of a
        claim that the run does not exist."""
        runs = self.known_runs(attempts)
        wanted = None if run_id == NEWEST else run_id
        if wanted is not None and wanted not in runs and self.unlisted:
            for one in self.databases:  # the file that cannot be read may be its own
                attempts.read(one, partial(groups_of, [one], wanted))
        if not runs or (wanted is not None and wanted not in runs):
            attempts.raise_first()
        return chosen_run(run_id, runs, self)

    def _tables(self, run_id: str) -> list[TableReport]:
        if self.catalog is None:
            return []
        tables = tables_of(self.catalog, run_id, None)
        if self.presence is None:
            return tables
        return with_missing(tables, self.catalog, run_id, self.presence, GLANCE_SECONDS, self._excused(run_id))

    def _excused(self, run_id: str) -> Sequence[TickRange]:
        """Returns the ticks that nobody had written when the run was abandoned. No table lacks them."""
        return never_written(self.storage, run_id) if self.storage is not None else ()

    def _report(self, run_id: str, before: Attempts) -> RunReport:
        storage, catalog, attempts = self.storage, self.catalog, Attempts(before)
        files = attempts.read(storage, lambda: files_of(storage, run_id) if storage else None)
        newest = files.ticks.end if files and files.ticks else None
        tables = attempts.read(catalog, lambda: tables_of(catalog, run_id, newest) if catalog else [])
        tables = [*(tables or []), *self.gone_tables(run_id, attempts)]
        groups: list[GroupReport] = []
        coordinated: list[CoordinatedReport] = []
        for one in self.databases:
            groups += attempts.read(one, partial(groups_of, [one], run_id)) or []
            if storage is not None:
                coordinated += attempts.read(one, partial(files_left_of, storage, [one], run_id)) or []
        error = " ".join(attempts.errors) or None
        merged = list(merged_files(coordinated))
        return RunReport(run_id, run_started_at(run_id), files, tables, groups, error, merged)

    def gone_tables(self, run_id: str, attempts: Attempts) -> list[TableReport]:
        """Returns the tables that a database knows of and that are gone from the lake."""
        if self.catalog is None:
            return []
        read = partial(gone_tables, self.catalog, run_id)
        found: dict[str, str] = {}
        for one in self.databases:
            gone = attempts.read(one, lambda: read(runs_in([one], run_id)))  # noqa: B023  called here
            found |= {name: str(error) for name, error in (gone or {}).items()}
        return [TableReport(name, error=text, gone=True) for name, text in sorted(found.items())]


def chosen_run(run_id: str | None, runs: Sequence[str], places: object) -> str:
    """Returns the given run; by default, or of `newest`, the newest. Raises `RunNotFound` if it does not exist."""
    if run_id is not None and run_id in runs:
        return run_id
    if run_id in (None, NEWEST) and runs:
        return runs[-1]
    found = ", ".join(runs[-5:]) or "none"
    if run_id in (None, NEWEST):
        raise NoRuns(run_id="", places=places, found=found)
    raise RunNotFound(run_id=run_id, places=places, found=found)


def tables_of(catalog: Catalog, run_id: str, newest: int | None) -> list[TableReport]:
    return [_table_report(catalog, run_id, name, newest) for name in catalog.tables(run_id)]


def with_missing(
    tables: Sequence[TableReport],
    catalog: Catalog,
    run_id: str,
    presence: Presence,
    seconds: float = math.inf,
    excused: Sequence[TickRange] = (),
    storage: Storage | None = None,
) -> list[TableReport]:
    """Adds the missing ticks to the reports, except excused ones. They are found in the tables, without batch files.

    With a storage, its files say how often they were sampled. By default, that is the sampling interval of the run.
    """
    from ticklake.lake.read import world_of

    world = world_of(catalog, run_id)
    if world is None:
        return list(tables)
    step = world.sampling_interval
    grid = Grid(step) if storage is None else grid_in(storage, run_id, step)
    ranges = partial(presence.ranges, catalog, run_id, step=grid.finest, seconds=seconds)
    return [_with_missing(table, ranges, grid, world.first_tick, excused) for table in tables]


def groups_of(databases: Iterable[Database], run_id: str) -> list[GroupReport]:
    """Reads the groups from the databases, so it works without a running consumer."""
    return [
        GroupReport(found.topic, found.group, found.lag, found.claimed, found.dead_letters, _seconds(found.oldest_ms))
        for run in runs_in(databases, run_id)
        for found in run.groups.list()
    ]


def gaps_of(
    databases: Iterable[Database],
    run_id: str,
    catalogs: Iterable[Catalog] | None = None,
    presence: Presence | None = None,
    excused: Sequence[TickRange] = (),
) -> list[GapsReport]:
    """Returns the open gaps of a run by indexer class, without those whose ticks are all excused.

    With catalogs, only gaps of tables in these lakes, without those that were filled by an indexer that does not use
    the database.
    """
    runs = runs_in(databases, run_id)
    if catalogs is None:
        return _counted([one for run in runs for one in recorded_gaps(run) if subtract([one.ticks], excused, 1)])
    tables: defaultdict[str, list[tuple[Catalog, str]]] = defaultdict(list)
    for lake in catalogs:
        for key, names in names_by_id(lake, run_id).items():
            tables[key] += [(lake, name) for name in names]
    # Gaps that were recorded before tables had ids have an empty id.
    recorded = [one for run in runs for one in recorded_gaps(run, ["", *tables])]
    found = [one for one in recorded if subtract([one.ticks], excused, 1)]
    for table_id in {one.table_id for one in found} & set(tables):
        present = [_present(lake, name, run_id, presence) for lake, name in tables[table_id]]
        found = _without_filled(found, table_id, present)
    return _counted(found)


def held_back_of(databases: Iterable[Database], run_id: str) -> list[OpenTransaction]:
    """Returns open transactions of others that keep the vacuum of a database from removing rows."""
    return [held for run in runs_in(databases, run_id) if (held := run.held_back_by()) is not None]


def announced_of(databases: Iterable[Database], run_id: str) -> Announcement | None:
    """Returns the newest announced batch file of all topics of the run.

    Reads the last messages of each topic, because competing producers do not announce files in tick order.
    """
    found = []
    for run in runs_in(databases, run_id):
        now = run.now_ms()
        for topic in run.topic_names():
            for message in run.browse_last(topic, LAST_MESSAGES):
                opened = message.opened()
                if opened is not None and isinstance(opened.payload, BatchInfo):
                    ticks = TickRange(opened.payload.tick_start, opened.payload.tick_end)
                    found.append(Announcement(topic, ticks, max(0, now - message.published_at_ms) / 1000))
    return max(found, key=lambda one: (one.ticks.end, -one.seconds), default=None)


def rows_per_second(before: Glance | None, after: Glance) -> dict[str, float]:
    """Returns the growth of each table between two glances, at least 0; empty without an earlier glance."""
    if before is None or before.run_id != after.run_id or after.at <= before.at:
        return {}
    known = {table.name: table.rows for table in before.tables}
    return {
        table.name: max(0, table.rows - (known.get(table.name) or 0)) / (after.at - before.at)
        for table in after.tables
        if table.rows is not None and (table.name not in known or known[table.name] is not None)
    }


def _counted(gaps: Sequence[RecordedGap]) -> list[GapsReport]:
    found = []
    for kind in sorted({one.indexer_class for one in gaps}):
        own = [one for one in gaps if one.indexer_class == kind]
        pending = sum(one.status == PENDING for one in own)
        found.append(GapsReport(kind, pending, len(own) - pending, max(one.age_ms for one in own) / 1000))
    return found


def _without_filled(
    gaps: Sequence[RecordedGap], table_id: str, present: Sequence[tuple[list[TickRange], int]]
) -> list[RecordedGap]:
    """Removes gaps whose ticks the table has by now, because they were indexed without the database.

    Copies of a table have the same id, so a gap is removed only if all of them have its ticks.
    """
    own = [one.ticks for one in gaps if one.table_id == table_id]
    lacking = [GapIndex(subtract(merged(own, step), ticks, step)) for ticks, step in present]
    return [
        one
        for one in gaps
        if one.table_id != table_id or any(searched.gap_of(one.ticks) is not None for searched in lacking)
    ]


def _present(catalog: Catalog, table: str, run_id: str, presence: Presence | None) -> tuple[list[TickRange], int]:
    """Returns the ticks of a table and the sampling interval; no ticks if they are not known yet."""
    from ticklake.lake.read import world_of

    world = world_of(catalog, run_id)
    if presence is None or world is None:
        return [], 1
    step = world.sampling_interval
    try:
        return presence.ranges(catalog, run_id, table, step, GLANCE_SECONDS) or [], step
    except TableUnreadable:
        return [], step


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _table_report(catalog: Catalog, run_id: str, name: str, newest: int | None) -> TableReport:
    try:
        facts = catalog.facts(run_id, name)
    except TableUnreadable as error:
        return TableReport(name, error=str(error))
    lag = None if newest is None or facts.ticks is None else max(0, newest - facts.ticks.end)
    return TableReport(
        name, facts.rows, facts.files, facts.bytes, facts.ticks, lag, _flaw_of_metadata(catalog, run_id, name)
    )


def _flaw_of_metadata(catalog: Catalog, run_id: str, name: str) -> str | None:
    """Returns why the table `metadata` of a run cannot be used. Without it, missing ticks are unknown."""
    from ticklake.lake.metadata import TABLE, read_metadata

    try:
        if name == TABLE:
            read_metadata(catalog.location(run_id, TABLE), run_id)
    except (TableUnreadable, LakeUnreadable) as error:
        return str(error)
    return None


def _with_missing(
    table: TableReport,
    ranges: Callable[[str], list[TickRange] | None],
    grid: Grid,
    first: int,
    excused: Sequence[TickRange],
) -> TableReport:
    try:
        found = None if table.error else ranges(table.name)
    except TableUnreadable as error:
        return replace(table, error=str(error))
    if found is None:
        return table
    # If the log of a table has no tick range, its files determine the end.
    end = max((ticks.end for ticks in (*found, *filter(None, [table.ticks]))), default=-1)
    holes = grid.subtract([TickRange(first, end)], [*found, *excused])
    return replace(table, missing=len(holes), missing_ticks=grid.count(holes))
