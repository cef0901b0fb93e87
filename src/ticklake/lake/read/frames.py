"""Reads ticks for display: one tick of a table, or a few columns of the ticks before it. Tables are kept open."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from ticklake.lake.cells import ALL, cells_in
from ticklake.lake.delta import (
    ANY_TICK,
    Contents,
    DeltaError,
    DeltaTable,
    Head,
    Location,
    TableFolder,
    contents_of,
    dataset_of,
    one_line,
    row_groups,
)
from ticklake.lake.empty import EmptyTicks, Ticks, joined, ticks_of
from ticklake.lake.errors import TableNotInRun, TableUnreadable
from ticklake.lake.metadata import TABLE as METADATA
from ticklake.lake.metadata import read_metadata
from ticklake.lake.read.catalog import Catalog, TableFacts, empty_of
from ticklake.ticks import TickRange
from ticklake.world import World

T = TypeVar("T")

OPEN_TABLES = 16
FRESH_SECONDS = 1.0
ROWS_AT_ONCE = 4_000_000
"""The number of rows that a look back may read. It takes about a second."""
_NO_TICK = TickRange(0, -1)


@dataclass(frozen=True)
class OpenTable:
    """A table at one version. Its dataset caches the footers that it has read."""

    head: Head
    location: Location
    delta: DeltaTable
    dataset: pa.dataset.Dataset
    empty_ticks: EmptyTicks

    def tick(self, tick: int, columns: Sequence[str]) -> pa.Table:
        """Returns the rows of one tick. Reads only row groups that may contain it."""
        return self.dataset.to_table(columns=list(columns), filter=pc.field("tick_number") == tick)

    def empty(self, ticks: TickRange) -> Ticks:
        """Returns the ticks of a range that are known to have no rows. Others without rows are not in the table.

        If the table has only snapshots, that is known of none.
        """
        return self.empty_ticks.within(ticks if cells_in(self.delta.metadata().configuration) == ALL else _NO_TICK)

    def has(self, ticks: TickRange) -> Ticks:
        """Returns the ticks of a range whose rows are in the table, also if they have none."""
        rows = self.dataset.to_table(columns=["tick_number"], filter=_between(ticks))
        return joined([ticks_of(rows["tick_number"]), self.empty(ticks)])

    def look_back(self, ticks: TickRange, columns: Sequence[str], which: pc.Expression) -> pa.Table:
        """Returns the rows of these ticks that match `which`, ordered by tick."""
        return self.dataset.to_table(columns=list(columns), filter=_between(ticks) & which).sort_by("tick_number")

    def scan(
        self, columns: Sequence[str], ticks: TickRange, wanted: Callable[[TickRange], bool]
    ) -> Iterator[pa.RecordBatch]:
        """Yields whole row groups whose ticks are wanted. The caller drops other ticks, which is cheaper after summing.

        An Arrow filter on a list of ticks would not skip any row group.
        """
        for fragment in self.dataset.get_fragments(_between(ticks)):
            groups = [place for place, found in enumerate(_groups(fragment)) if found.overlaps(ticks) and wanted(found)]
            if groups:
                yield from fragment.subset(row_group_ids=groups).to_batches(columns=list(columns))

    def rows(self, ticks: TickRange) -> float:
        """Estimates the number of rows of these ticks, as if each tick of a file had equally many."""
        found = contents_of(self.delta, self.location, "tick_number")
        return sum(_share(file, ticks) for file in found if file is not None)


class Frames:
    """Open tables, shared by all viewers. The log of a table is checked once a second at most.

    A table may be removed and created again with the same number of commits. So the digest of its newest commit is
    compared: if it has changed, the table is opened again.
    """

    def __init__(self, catalog: Catalog, clock: Callable[[], float] = time.monotonic) -> None:
        self._catalog, self._clock = catalog, clock
        self._lock = threading.Lock()
        self._tables: OrderedDict[tuple[str, str], tuple[OpenTable, float]] = OrderedDict()
        self._worlds: dict[str, tuple[Head, World]] = {}

    def world(self, run_id: str) -> World | None:
        """Returns the world of a run from its metadata table, or None if there is no such table yet."""
        try:
            head = self._opened(run_id, METADATA).head
        except TableNotInRun:
            return None
        known, world = self._worlds.get(run_id, (None, None))
        if known == head:
            return world
        metadata = read_metadata(self._catalog.location(run_id, METADATA), run_id)
        if metadata is None:
            return None
        world = World.of(metadata)
        self._worlds[run_id] = head, world
        return world

    def tables(self, run_id: str) -> list[str]:
        return self._catalog.tables(run_id)

    def facts(self, run_id: str, table: str) -> TableFacts:
        return self._catalog.facts(run_id, table)

    def reading(self, run_id: str, table: str, read: Callable[[OpenTable], T]) -> T:
        """Calls `read` with an open table. Tries again if files of the table were removed meanwhile.

        Raises `TableUnreadable` if a file is damaged.
        """
        for last in (False, True):
            try:
                return read(self._opened(run_id, table))
            except FileNotFoundError as error:
                if last:
                    raise TableUnreadable(table=f"{run_id}/{table}", reason=one_line(error)) from error
                with self._lock:
                    self._tables.pop((run_id, table), None)
            except (pa.ArrowException, DeltaError, OSError) as error:
                raise TableUnreadable(table=f"{run_id}/{table}", reason=one_line(error)) from error
        raise AssertionError("never reached")

    def reach(self, run_id: str, table: str, tick: int, step: int, samples: int) -> TickRange:
        """Returns the ticks up to `tick`: as many samples as given, or fewer if they have too many rows."""
        facts = self.facts(run_id, table)
        if facts.ticks is None or facts.rows is None:
            return TickRange(tick, tick)
        sampled = max(1, (facts.ticks.end - facts.ticks.start) // step + 1)
        affordable = ROWS_AT_ONCE * sampled // max(1, facts.rows)
        span = (max(1, min(samples, affordable)) - 1) * step
        return TickRange(max(facts.ticks.start, tick // step * step - span), tick)

    def _opened(self, run_id: str, table: str) -> OpenTable:
        with self._lock:
            opened, looked_at = self._tables.pop((run_id, table), (None, 0.0))
            if opened is None or self._clock() - looked_at > FRESH_SECONDS:
                looked_at = self._clock()
                if opened is None or not self._is_newest(opened.head, run_id, table):
                    opened = self._open(run_id, table)
            self._tables[run_id, table] = opened, looked_at
            while len(self._tables) > OPEN_TABLES:
                self._tables.popitem(last=False)
            return opened

    def _is_newest(self, head: Head, run_id: str, table: str) -> bool:
        try:
            with TableFolder(self._catalog.location(run_id, table)) as folder:
                return folder.digest(head.version) == head.digest and not folder.has_any_after(head.version)
        except OSError:
            return False

    def _open(self, run_id: str, table: str) -> OpenTable:
        tables = self._catalog.tables(run_id)
        if table not in tables:
            raise TableNotInRun(table=table, run_id=run_id, found=", ".join(tables) or "none")
        location = self._catalog.location(run_id, table)
        try:
            while True:
                with TableFolder(location) as folder:
                    delta = self._catalog.open(run_id, table)
                    head = Head(int(delta.version()), folder.digest(int(delta.version())) or "")
                    opened = OpenTable(head, location, delta, dataset_of(delta, location), empty_of(delta, location))
                    # Otherwise the table has just been created again, and the digest may be that of another table.
                    if folder.is_here():
                        return opened
        except (pa.ArrowException, DeltaError, OSError) as error:
            raise TableUnreadable(table=f"{run_id}/{table}", reason=one_line(error)) from error


def _between(ticks: TickRange) -> pc.Expression:
    tick = pc.field("tick_number")
    return (tick >= ticks.start) & (tick <= ticks.end)


def _share(file: Contents, ticks: TickRange) -> float:
    if file.bounds is None:
        return 0.0
    return file.rows * file.bounds.within(ticks).count() / file.bounds.count()


def _groups(fragment: pa.dataset.ParquetFileFragment) -> Iterator[TickRange]:
    """Yields the ticks of each row group: any tick if there are no statistics, none if all are null."""
    for group in row_groups(fragment.metadata, "tick_number"):
        yield group.bounds or (ANY_TICK if group.has_values else _NO_TICK)
