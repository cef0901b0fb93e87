"""Ticks of a run for the eye: one tick of a table, or a few columns of the ticks before it, from tables kept open."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from ticklake.errors import TableNotInRun, TableUnreadable
from ticklake.lake.catalog import Catalog, TableFacts, empty_of
from ticklake.lake.dataset import dataset_of
from ticklake.lake.empty import EmptyTicks, Ticks, joined
from ticklake.lake.log import one_line
from ticklake.lake.metadata import TABLE as METADATA
from ticklake.lake.metadata import read_metadata
from ticklake.lake.snapshot import ANY_TICK
from ticklake.ticks import TickRange
from ticklake.world import World

OPEN_TABLES = 16
FRESH_SECONDS = 1.0
ROWS_AT_ONCE = 4_000_000
"""How many rows a look back may read: a second's work."""


@dataclass
class _Opened:
    """A table as of the last look at its log. Its dataset remembers the footers that it has read."""

    delta: DeltaTable
    dataset: pa.dataset.Dataset
    empty: EmptyTicks
    looked_at: float


class Frames:
    """Shared by all viewers: a table is opened once, and its log looked at once a second at most."""

    def __init__(self, catalog: Catalog, clock: Callable[[], float] = time.monotonic) -> None:
        self._catalog, self._clock = catalog, clock
        self._lock = threading.Lock()
        self._tables: OrderedDict[tuple[str, str], _Opened] = OrderedDict()
        self._worlds: dict[str, World] = {}

    def world(self, run_id: str) -> World | None:
        """What the run's metadata table says; None as long as there is none."""
        if run_id not in self._worlds:
            metadata = read_metadata(self._catalog.root / run_id / METADATA)
            if metadata is None:
                return None
            self._worlds[run_id] = World.of(metadata)
        return self._worlds[run_id]

    def tables(self, run_id: str) -> list[str]:
        return self._catalog.tables(run_id)

    def facts(self, run_id: str, table: str) -> TableFacts:
        return self._catalog.facts(run_id, table)

    def tick(self, run_id: str, table: str, tick: int, columns: Sequence[str]) -> pa.Table:
        """The rows of one tick: of the files, only the row groups that may have it are read."""
        return self._table(run_id, table).to_table(columns=list(columns), filter=pc.field("tick_number") == tick)

    def empty(self, run_id: str, table: str, ticks: TickRange) -> Ticks:
        """The ticks that the table has and that have no row. Any other tick without a row is not in the table."""
        return self._opened(run_id, table).empty.within(ticks)

    def has(self, run_id: str, table: str, ticks: TickRange) -> Ticks:
        """The ticks of a range that the table has, with rows or without."""
        rows = self._table(run_id, table).to_table(columns=["tick_number"], filter=_between(ticks))
        return joined([rows["tick_number"].to_numpy(), self.empty(run_id, table, ticks)])

    def look_back(
        self, run_id: str, table: str, ticks: TickRange, columns: Sequence[str], which: pc.Expression
    ) -> pa.Table:
        """Some rows of some ticks, in the order of the ticks."""
        found = self._table(run_id, table).to_table(columns=list(columns), filter=_between(ticks) & which)
        return found.sort_by("tick_number")

    def scan(
        self, run_id: str, table: str, columns: Sequence[str], ticks: TickRange, wanted: Callable[[TickRange], bool]
    ) -> Iterator[pa.RecordBatch]:
        """Whole row groups, those whose ticks are wanted: to leave out the other ticks is cheaper once they are summed.

        Arrow's own way, a filter that names the ticks, finds no row group without them.
        """
        for fragment in self._table(run_id, table).get_fragments(_between(ticks)):
            groups = [place for place, found in enumerate(_groups(fragment)) if found.overlaps(ticks) and wanted(found)]
            if groups:
                yield from fragment.subset(row_group_ids=groups).to_batches(columns=list(columns))

    def rows(self, run_id: str, table: str, ticks: TickRange) -> float:
        """About how many rows these ticks have, by the statistics of the files."""
        adds = pa.table(self._opened(run_id, table).delta.get_add_actions(flatten=True))
        if not adds.num_rows or "min.tick_number" not in adds.schema.names:
            return 0.0
        low, high = (adds[f"{kind}.tick_number"].to_numpy().astype(np.float64) for kind in ("min", "max"))
        shared = np.minimum(high, ticks.end) - np.maximum(low, ticks.start) + 1
        return float(np.nansum(np.clip(shared, 0, None) / (high - low + 1) * adds["num_records"].to_numpy()))

    def reach(self, run_id: str, table: str, tick: int, step: int, samples: int) -> TickRange:
        """The last ticks up to `tick`: as many samples as asked for, or as few as their rows allow."""
        facts = self.facts(run_id, table)
        if facts.ticks is None:
            return TickRange(tick, tick)
        sampled = max(1, (facts.ticks.end - facts.ticks.start) // step + 1)
        affordable = ROWS_AT_ONCE * sampled // max(1, facts.rows)
        span = (max(1, min(samples, affordable)) - 1) * step
        return TickRange(max(facts.ticks.start, tick - span), tick)

    def _table(self, run_id: str, table: str) -> pa.dataset.Dataset:
        return self._opened(run_id, table).dataset

    def _opened(self, run_id: str, table: str) -> _Opened:
        with self._lock:
            opened = self._tables.get((run_id, table))
            if opened is None:
                opened = self._tables[run_id, table] = self._open(run_id, table)
            elif self._clock() - opened.looked_at > FRESH_SECONDS:
                self._refresh(opened, run_id, table)
            self._tables.move_to_end((run_id, table))
            while len(self._tables) > OPEN_TABLES:
                self._tables.popitem(last=False)
            return opened

    def _open(self, run_id: str, table: str) -> _Opened:
        tables = self._catalog.tables(run_id)
        if table not in tables:
            raise TableNotInRun(table=table, run_id=run_id, found=", ".join(tables) or "none")
        delta = self._catalog.open(run_id, table)
        return _Opened(delta, self._dataset(delta, run_id, table), self._empty(delta, run_id, table), self._clock())

    def _refresh(self, opened: _Opened, run_id: str, table: str) -> None:
        version = opened.delta.version()
        try:
            opened.delta.update_incremental()
        except (DeltaError, OSError) as error:
            raise TableUnreadable(table=f"{run_id}/{table}", reason=one_line(error)) from error
        if opened.delta.version() != version:
            opened.dataset = self._dataset(opened.delta, run_id, table)
            opened.empty = self._empty(opened.delta, run_id, table)
        opened.looked_at = self._clock()

    def _dataset(self, delta: DeltaTable, run_id: str, table: str) -> pa.dataset.Dataset:
        return dataset_of(delta, self._catalog.root / run_id / table)

    def _empty(self, delta: DeltaTable, run_id: str, table: str) -> EmptyTicks:
        return empty_of(delta, self._catalog.root / run_id / table)


def _between(ticks: TickRange) -> pc.Expression:
    tick = pc.field("tick_number")
    return (tick >= ticks.start) & (tick <= ticks.end)


def _groups(fragment: pa.dataset.ParquetFileFragment) -> Iterator[TickRange]:
    """The ticks of each row group; any, where its statistics do not tell."""
    metadata, column = fragment.metadata, fragment.physical_schema.get_field_index("tick_number")
    for place in range(metadata.num_row_groups):
        found = metadata.row_group(place).column(column).statistics
        yield TickRange(found.min, found.max) if found is not None and found.has_min_max else ANY_TICK
