"""Judges tables of ticks by the batch files of the run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ticklake.completeness.coordinators import Coordinators
from ticklake.completeness.files import Files
from ticklake.completeness.judging import judge
from ticklake.completeness.tables import Tables
from ticklake.completeness.verdicts import TableVerdict
from ticklake.coordination import Coordinator, Gap
from ticklake.lake.empty import joined
from ticklake.lake.verify import Deep, compare_deeply
from ticklake.storage import Storage
from ticklake.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TickTables:
    """Judges tables of ticks. Each must have every tick of the files once."""

    def __init__(
        self, storage: Storage, world: World, files: Files, tables: Tables, coordinators: Coordinators
    ) -> None:
        self._storage, self._world, self._step = storage, world, world.sampling_interval
        self._files, self._tables, self._coordinators = files, tables, coordinators

    def judge(self, table: str, *, count_rows: bool, spark: SparkSession | None) -> TableVerdict:
        """Returns the verdict on a table. With a Spark session, its rows are compared with the files."""
        contents = self._tables.contents(table, count_rows=count_rows)
        deep = self._deep(table, spark) if spark is not None else None
        damaged = self._tables.damaged(table) if spark is not None and deep is None else {}
        gone = self._tables.gone.get(table, "")
        flaws = contents.flaws + (deep.flaws if deep else 0) + len(damaged) + bool(gone)
        without_rows = [self._files.expected.grid.ticks_of(ticks) for ticks in (deep.without_rows if deep else [])]
        present = self._files.without_new_ticks(joined([contents.numbers, *without_rows]))
        coordinator = self._coordinators.of(table)
        present_ticks = self._files.present_ticks(coordinator.incomplete() if coordinator else [])
        return TableVerdict(
            table=table,
            step=self._step,
            coverage=judge(replace(self._files.expected, present=present_ticks), present, flaws),
            rows=contents.rows,
            duplicated=contents.duplicated,
            duplicates=contents.duplicates,
            gaps=self._gaps(coordinator) if coordinator else [],
            failed=coordinator.failed() if coordinator else [],
            frontier=coordinator.frontier() if coordinator else None,
            deep=deep,
            unreadable=contents.unreadable or gone,
            damaged=damaged,
        )

    def _gaps(self, coordinator: Coordinator) -> list[Gap]:
        """Returns the sampled ticks of the recorded gaps, which may be on the grid of an earlier sampling interval."""
        grid = self._files.expected.grid
        return [gap._replace(ticks=ticks) for gap in coordinator.gaps() for ticks in grid.on_grid(gap.ticks)]

    def _deep(self, table: str, spark: SparkSession) -> Deep | None:
        """Compares rows; None if the table does not exist or has no built-in indexer."""
        kind = self._tables.indexer(table)
        if kind is None or not self._tables.exists(table):
            return None
        work = kind.work(self._storage, self._world, self._tables.location(table))
        grid = self._files.expected.grid
        deep = compare_deeply(spark, work, [self._storage.batch(key) for key in self._files.by_key], grid)
        if not deep.unproven:
            return deep
        return replace(deep, unproven=grid.subtract(deep.unproven, self._files.new_ticks()))
