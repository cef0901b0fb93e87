"""Compaction and vacuum of all tables of a lake, or of chosen ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from ticklake.errors import TickLakeError
from ticklake.lake.delta import DeltaError, Location, one_line, unreadable
from ticklake.lake.errors import LakeUnwritable, RunFolderUnreadable, TableNotInLake
from ticklake.lake.ledger import Ledger, open_existing
from ticklake.lake.read import Catalog
from ticklake.lake.upkeep.compaction import BY_HAND, Compacted, Compaction
from ticklake.lake.upkeep.vacuum import Garbage, Vacuum, check_retention

Progress = Callable[[str, int, int], None]
"""Called with the name of a table, the work done, and the total work."""


@dataclass(frozen=True)
class Optimized:
    """The changes that a compaction made to a table, and its number of files now."""

    run_id: str
    table: str
    files: int
    files_removed: int
    files_added: int
    bytes_removed: int
    bytes_added: int


@dataclass(frozen=True)
class Vacuumed:
    """The files that were removed from a table, or would be."""

    run_id: str
    table: str
    files: int
    bytes: int


@dataclass(frozen=True)
class Failed:
    """A table that could not be worked on. `table` is empty if the tables of the run could not be listed."""

    run_id: str
    table: str
    error: str

    def __str__(self) -> str:
        return f"{self.run_id}/{self.table}: {self.error}" if self.table else self.error


def tables_of(
    catalog: Catalog, run_id: str | None, wanted: Sequence[str], failures: list[Failed]
) -> list[tuple[str, str]]:
    """Returns runs with their tables: all, or only the wanted ones. Raises if no run has a wanted table."""
    there: list[tuple[str, str]] = []
    for run in catalog.chosen(run_id):
        try:
            there += [(run, table) for table in catalog.tables(run)]
        except RunFolderUnreadable as error:
            failures.append(Failed(run, "", str(error)))
    names = {table for _, table in there}
    for table in wanted:
        if table not in names and not failures:
            raise TableNotInLake(table=table, lake=catalog.root, found=", ".join(sorted(names)) or "none")
    return [(run, table) for run, table in there if not wanted or table in wanted]


@contextmanager
def _failing_alone(run: str, table: str, failures: list[Failed]) -> Iterator[None]:
    """Lets the work on the other tables go on if this one fails, for whatever reason."""
    try:
        yield
    except Exception as error:
        kind = "" if isinstance(error, TickLakeError) else f"{type(error).__name__}: "
        failures.append(Failed(run, table, kind + " ".join(str(error).split())))


def optimize_tables(
    catalog: Catalog, run_id: str | None, wanted: Sequence[str], progress: Progress, failures: list[Failed]
) -> list[Optimized]:
    """Compacts each table and writes a checkpoint of its log. A table that fails is added to `failures`."""
    found = []
    for run, table in tables_of(catalog, run_id, wanted, failures):
        with _failing_alone(run, table, failures):
            ledger = open_table(catalog.location(run, table), run)
            if ledger is not None:
                done = _compact(ledger, partial(progress, f"{run}/{table}"))
                found.append(Optimized(run, table, len(ledger.files), **vars(done)))
    return found


def vacuum_tables(
    catalog: Catalog,
    run_id: str | None,
    wanted: Sequence[str],
    older_than: float,
    progress: Progress,
    failures: list[Failed],
    *,
    force: bool = False,
    dry_run: bool = False,
) -> list[Vacuumed]:
    """Removes files that no version of a table needed within the last `older_than` seconds.

    A table that fails is added to `failures`. What was removed before that is in the result.
    """
    check_retention(older_than, force=force)
    found = []
    for run, table in tables_of(catalog, run_id, wanted, failures):
        gone: list[Garbage] = []
        with _failing_alone(run, table, failures):
            vacuum = Vacuum(catalog.location(run, table), run, older_than, force=force)
            garbage = vacuum.find()
            gone += garbage if dry_run else []
            for one in () if dry_run else vacuum.remove(garbage):
                gone.append(one)
                progress(f"{run}/{table}", len(gone), len(garbage))
        if gone or not (failures and (failures[-1].run_id, failures[-1].table) == (run, table)):
            found.append(Vacuumed(run, table, len(gone), sum(one.size for one in gone)))
    return found


def open_table(location: Location, run_id: str) -> Ledger | None:
    """Opens a table of a run, or returns None if it has no ticks, such as `metadata`: it has nothing to merge."""
    try:
        return open_existing(location, run_id)
    except (DeltaError, OSError) as error:
        raise unreadable(location, error) from error


def _compact(ledger: Ledger, progress: Callable[[int, int], None]) -> Compacted:
    compaction = Compaction(ledger, BY_HAND)
    whole = compaction.waiting()
    done = Compacted()
    for step in compaction.steps():
        done += step
        progress(min(done.files_removed, whole), whole)
    try:
        ledger.checkpoint()
    except (DeltaError, OSError) as error:
        raise LakeUnwritable(directory=str(ledger.location), reason=one_line(error)) from error
    return done
