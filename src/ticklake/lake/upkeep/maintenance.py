"""Compaction and vacuum of all tables of a lake, or of chosen ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from ticklake.lake.delta import DeltaError, Location, one_line
from ticklake.lake.errors import LakeUnwritable, TableNotInLake, TableUnreadable
from ticklake.lake.ledger import Ledger, open_existing
from ticklake.lake.read import Catalog
from ticklake.lake.upkeep.compaction import BY_HAND, Compacted, Compaction
from ticklake.lake.upkeep.vacuum import Garbage, Vacuum

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


def tables_of(catalog: Catalog, run_id: str | None, wanted: Sequence[str]) -> list[tuple[str, str]]:
    """Returns runs with their tables: all, or only the wanted ones. Raises if no run has a wanted table."""
    there = [(run, table) for run in catalog.chosen(run_id) for table in catalog.tables(run)]
    names = {table for _, table in there}
    for table in wanted:
        if table not in names:
            raise TableNotInLake(table=table, lake=catalog.root, found=", ".join(sorted(names)) or "none")
    return [(run, table) for run, table in there if not wanted or table in wanted]


def optimize_tables(
    catalog: Catalog, run_id: str | None, wanted: Sequence[str], progress: Progress
) -> Iterator[Optimized]:
    """Compacts each table and writes a checkpoint of its log."""
    for run, table in tables_of(catalog, run_id, wanted):
        ledger = open_table(catalog.location(run, table), run)
        if ledger is None:
            continue
        done = _compact(ledger, partial(progress, f"{run}/{table}"))
        yield Optimized(run, table, len(ledger.files), **vars(done))


def vacuum_tables(
    catalog: Catalog,
    run_id: str | None,
    wanted: Sequence[str],
    older_than: float,
    progress: Progress,
    *,
    force: bool = False,
    dry_run: bool = False,
) -> Iterator[Vacuumed]:
    """Removes files that no version of a table needed within the last `older_than` seconds."""
    for run, table in tables_of(catalog, run_id, wanted):
        vacuum = Vacuum(catalog.location(run, table), run, older_than, force=force)
        garbage = vacuum.find()
        gone: list[Garbage] = list(garbage) if dry_run else []
        for one in () if dry_run else vacuum.remove(garbage):
            gone.append(one)
            progress(f"{run}/{table}", len(gone), len(garbage))
        yield Vacuumed(run, table, len(gone), sum(one.size for one in gone))


def open_table(location: Location, run_id: str) -> Ledger | None:
    """Opens a table of a run, or returns None if it has no ticks, such as `metadata`: it has nothing to merge."""
    try:
        return open_existing(location, run_id)
    except (DeltaError, OSError) as error:
        raise TableUnreadable(table=location, reason=one_line(error)) from error


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
