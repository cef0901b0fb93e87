"""Counts batch files: all of a run, and those that indexers with a coordinator still have to index."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from ticklake.coordination import RecordedTable, files_left, recorded_tables
from ticklake.errors import TickLakeError
from ticklake.indexers.runs.pending import Folders
from ticklake.insights.reports import CoordinatedReport, FilesReport
from ticklake.lake.delta import Location
from ticklake.lives import RunState, life_of
from ticklake.storage import Storage, format_at_a_glance, grid_of, parse_batch_name, stretches_of_run
from ticklake.storage.errors import BadFile, StoredFileMissing
from ticklake.ticks import Grid, TickRange, on_grid
from ticklake.topics import Database, Run, runs_in

DELETING = "deleting"
"""The state of a run whose deletion was begun."""

UNKNOWN = "unknown"
"""The format of a run whose first file has none that is known, or cannot be read."""


def files_of(storage: Storage, run_id: str) -> FilesReport:
    """Counts the batch files of a run."""
    count = size = 0
    ticks: TickRange | None = None
    first: str | None = None
    for file in storage.every_batch(run_id):
        count, size = count + 1, size + file.size
        ticks, first = _spanning(ticks, file.ticks), first or file.key
    found, unknown = _format(storage, first) if first else ("", None)
    report = FilesReport(count, size, ticks, completed=None, error=unknown, format=found)
    try:
        life = life_of(storage.read_completion(run_id))
    except BadFile as error:
        return replace(report, error=" ".join(filter(None, [unknown, str(error)])))
    state = str(life.state) if storage.leaving_note(run_id) is None else DELETING
    return replace(report, completed=life.last_tick is not None, state=state, last_tick=life.last_tick)


def _format(storage: Storage, key: str) -> tuple[str, str | None]:
    """Returns the format of a file and, if that is not known, why. Reads only its beginning."""
    try:
        return format_at_a_glance(storage, key), None
    except (BadFile, StoredFileMissing, OSError) as error:
        return UNKNOWN, str(error)


def state_of(storage: Storage, run_id: str) -> str | None:
    """Returns whether a run is running, ended or abandoned; None if that cannot be read."""
    try:
        return str(life_of(storage.read_completion(run_id)).state)
    except (TickLakeError, OSError):
        return None


def never_written(storage: Storage, run_id: str) -> Sequence[TickRange]:
    """Returns the ticks that nobody had written when a run was abandoned; none if that cannot be read."""
    try:
        return life_of(storage.read_completion(run_id)).never_written
    except (TickLakeError, OSError):
        return ()


def grid_in(storage: Storage, run_id: str, step: int) -> Grid:
    """Returns the ticks that the files of a run have; every `step`-th if they cannot be read."""
    try:
        chunks = stretches_of_run(storage, list(storage.every_batch(run_id)), step)
    except (TickLakeError, OSError):
        return Grid(step)
    return grid_of(chunks.values(), step)


def coordinated_in(run: Run) -> list[RecordedTable]:
    """Returns the tables that indexers fill with a coordinator alone.

    `ticklake index --database` also uses a coordinator for tables of consumer groups. Their lag says what is left.
    """
    recorded = recorded_tables(run)
    grouped = {_key(one) for one in recorded if one.group}
    return [one for one in recorded if not one.group and _key(one) not in grouped]


def report_of(one: RecordedTable) -> CoordinatedReport:
    """Returns the report of a table without counts."""
    return CoordinatedReport(one.indexer_class, Location.of(one.table.location).name if one.table.location else "")


def coordinated_of(databases: Iterable[Database], run_id: str) -> list[CoordinatedReport]:
    """Returns the tables that indexers fill with a coordinator and without a group, without counts."""
    return [report_of(one) for run in runs_in(databases, run_id) for one in coordinated_in(run)]


def files_left_of(storage: Storage, databases: Iterable[Database], run_id: str) -> list[CoordinatedReport]:
    """Returns these tables with the files that they still need. Lists the storage if there is such a table."""
    waiting = WaitingFiles([storage])
    return [one for run in runs_in(databases, run_id) for one in waiting.of(run)]


class WaitingFiles:
    """Lists the storage of runs whose indexers use a coordinator, until a run has ended and is complete."""

    def __init__(self, storages: Sequence[Storage], clock: Callable[[], float] = time.time) -> None:
        self._folders = {storage: Folders(storage, clock) for storage in storages}
        self._clock = clock
        self._watched: dict[str, list[Storage]] = {}

    def stamp(self, run_id: str) -> object:
        """Returns a value that changes after a file was added to a run that is watched; None if it may change now."""
        stamps = [self._folders[one].stamp(run_id) for one in self._watched.get(run_id, ())]
        return None if None in stamps else tuple(stamps)

    def never_written(self, run_id: str) -> list[TickRange]:
        """Returns the ticks that nobody had written when a run was abandoned."""
        return [ticks for storage in self._folders for ticks in never_written(storage, run_id)]

    def of(self, run: Run) -> tuple[CoordinatedReport, ...]:
        """Counts the files that each table of a run still needs. Nothing is returned if no storage has the run."""
        self._watched.pop(run.id, None)
        tables = coordinated_in(run) if self._folders else []
        found: list[CoordinatedReport] = []
        for storage, folders in self._folders.items() if tables else ():
            ended = _has_ended(storage, run.id)  # before the listing, which then has all files
            try:
                names = folders.names(run.id)
            except FileNotFoundError:
                continue  # it is in another storage
            counted = [self._counted(storage, run, one, names) for one in tables]
            if not ended or any(one.files for one in counted):
                self._watched.setdefault(run.id, []).append(storage)
            else:
                folders.forget(run.id)
            found += counted
        return merged_files(found)

    def _counted(self, storage: Storage, run: Run, one: RecordedTable, names: Sequence[str]) -> CoordinatedReport:
        left = files_left(run, one.indexer_class, one.table, names)
        ticks = {name: ticks for name in left.names if (ticks := parse_batch_name(name.rpartition("/")[2])) is not None}
        step = one.step or 1
        known = report_of(one)
        return CoordinatedReport(
            known.indexer_class,
            known.table,
            len(left.names),
            sum(on_grid(found, step).count(step) for found in ticks.values()),
            left.in_work,
            self._age(storage, run.id, ticks),
        )

    def _age(self, storage: Storage, run_id: str, files: dict[str, TickRange]) -> float | None:
        """Returns the age of the file with the lowest ticks. Files are written in this order, so it is the oldest."""
        if not files:
            return None
        try:
            written = storage.changed_at(f"{run_id}/{min(files, key=lambda name: files[name])}")
        except OSError:
            return None
        return None if written is None else max(0.0, round(self._clock() - written / 1e9, 3))


def merged_files(reports: Iterable[CoordinatedReport]) -> tuple[CoordinatedReport, ...]:
    """Merges the reports of an indexer class whose tables have one name, in several lakes, storages or databases."""
    found: dict[tuple[str, str], CoordinatedReport] = {}
    for one in reports:
        key = one.indexer_class, one.table
        found[key] = _added(found[key], one) if key in found else one
    return tuple(found.values())


def _added(one: CoordinatedReport, other: CoordinatedReport) -> CoordinatedReport:
    ages = [age for age in (one.oldest_seconds, other.oldest_seconds) if age is not None]
    return CoordinatedReport(
        one.indexer_class,
        one.table,
        one.files + other.files,
        one.ticks + other.ticks,
        one.in_work + other.in_work,
        max(ages, default=None),
    )


def _key(one: RecordedTable) -> str:
    return one.table.table_id or one.indexer_class


def _has_ended(storage: Storage, run_id: str) -> bool:
    """Returns whether a run gets no more files. One that was abandoned may: its producer was only silent."""
    try:
        return life_of(storage.read_completion(run_id)).state is RunState.ENDED
    except BadFile:
        return False


def _spanning(one: TickRange | None, other: TickRange) -> TickRange:
    return other if one is None else TickRange(min(one.start, other.start), max(one.end, other.end))
