"""Indexes a finished run from its files, without a topic, with the same flush and the same guarantee."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Self

from ticklake import defaults
from ticklake.indexers.base import IndexerOptions, IndexerResources
from ticklake.indexers.batch import BatchIndexer
from ticklake.indexers.batches import Batches, StoredBatches
from ticklake.indexers.builtin import MetadataIndexer
from ticklake.indexers.errors import NothingToIndex
from ticklake.indexers.shared_runs import Coordinated
from ticklake.lake.empty import joined
from ticklake.lake.flush import Sharing, rows_a_tick
from ticklake.lake.ledger import Ledger, Removal, lacking
from ticklake.monitoring import Monitor
from ticklake.storage import MAX_TICK, check_run_id, grid_of, stretches_of_run
from ticklake.storage.errors import RunNotFound
from ticklake.ticks import TickRange, ranges_of
from ticklake.world import World

if TYPE_CHECKING:
    from ticklake.indexers.coordinated import CoordinatedBatches
    from ticklake.indexers.subscription import Acknowledged

log = logging.getLogger(__name__)

# After a crash, the claims of the process expire after this time.
_LEASE_SECONDS = 30.0


@dataclass(frozen=True)
class Progress:
    """The progress of one table in ticks of files; a tick of two overlapping files counts twice in `total`.

    `present` ticks were skipped, because the table had them already: from before, or from an overlapping file.
    `kept` are ticks that were not replaced, because no good file has them.
    """

    table: str
    ticks: int
    present: int
    total: int
    rows: int
    failed: dict[str, str]
    kept: list[TickRange] = field(default_factory=list)


class FinishedRun:
    """Indexes all tables of one run together. Each batch file is read once; each table has its own progress."""

    def __init__(
        self,
        resources: IndexerResources,
        run_id: str,
        kinds: Iterable[type[BatchIndexer]],
        ticks: TickRange | None = None,
        insert_batch_size: int = defaults.INSERT_BATCH_SIZE,
    ) -> None:
        """With a database in `resources` several processes share the work, but not if `ticks` is given."""
        self._resources, self._run_id, self._ticks = resources, run_id, ticks
        shared = replace(resources, sharing=Sharing())
        self._sources: dict[Monitor, StoredBatches | CoordinatedBatches] = {}
        self._kept: dict[str, list[TickRange]] = {}
        self._bad: dict[str, dict[str, str]] = {}
        self._total, self._step = 0, 1
        self._replaces = False
        self._error: Exception | None = None
        self._options = IndexerOptions(
            run_id, insert_batch_size=insert_batch_size, until_caught_up=True, claim_timeout=_LEASE_SECONDS
        )
        self._indexers = [
            kind(kind.table.name, shared, self._options, partial(self._open, kind)) for kind in kinds if kind.table
        ]

    def prepare(self) -> Self:
        """Counts the ticks to index and writes the metadata. Does not need Spark.

        Raises `OtherCells` if a table has cells of other ticks.
        """
        storage = self._resources.storage
        runs = storage.runs()
        if check_run_id(self._run_id) not in runs:
            raise RunNotFound(run_id=self._run_id, places=storage.url, found=", ".join(runs[-5:]) or "none")
        for indexer in self._indexers:
            if indexer.table is not None:
                self._resources.tables.check_cells(self._run_id, indexer.table)
        self._step = step = World.of(storage.read_metadata(self._run_id)).sampling_interval
        files = list(storage.every_batch(self._run_id))
        chunks, within = stretches_of_run(storage, files, step), self._ticks or TickRange(0, MAX_TICK)
        self._total = sum(len(one.within(within)) for part in chunks.values() for one in part)
        self._total = self._total or sum(file.ticks.within(self._ticks).count(step) for file in files)
        if not self._total:
            raise NothingToIndex(run_id=self._run_id, storage=storage.url)
        MetadataIndexer("metadata-indexer", self._resources).write(self._run_id)
        return self

    def ticks_left(self, replace: bool = False) -> dict[str, int]:
        """Returns how many ticks each table lacks that files should have, or has to replace. Does not need Spark.

        If a table cannot be read, these are all ticks: indexing then repairs it or says what is wrong.
        """
        storage, run_id, step = self._resources.storage, self._run_id, self._step
        files = list(storage.every_batch(run_id))
        chunks = stretches_of_run(storage, files, step)
        grid = grid_of(chunks.values(), step)
        ranges = [TickRange(one.start, one.end) for part in chunks.values() for one in part]
        wanted = grid.merged(one.within(self._ticks) for one in ranges or [file.ticks for file in files])
        tables = {one.name: self._resources.tables.location(run_id, one.name) for one in self._indexers}
        return {
            name: grid.count(wanted if replace else lacking(table, run_id, wanted, grid))
            for name, table in tables.items()
        }

    def expected_rows(self, ticks: Mapping[str, int]) -> dict[str, int]:
        """Estimates how many rows each table gets for so many ticks. Leaves out what nobody can say."""
        storage = self._resources.storage
        world, files = World.of(storage.read_metadata(self._run_id)), list(storage.every_batch(self._run_id))
        rates = {one.name: rows_a_tick(one.work(storage, world, None), files) for one in self._indexers}
        return {name: round(rate * ticks[name]) for name, rate in rates.items() if rate is not None and ticks[name]}

    def remove(self) -> Self:
        """Removes the ticks from the tables, so that they are indexed again, for example by a corrected indexer.

        Every file is checked first, as in a flush. Only ticks of good files are removed. This process indexes those
        files without a coordinator, which may have older records of them. Nothing is removed before the removal is
        planned for all tables. If a removal still fails, the ticks removed so far are indexed again, and `wait` raises
        the error.
        """
        self._replaces = True
        plans = [self._plan(indexer) for indexer in self._indexers]
        try:
            for ledger, removal in plans:
                ledger.carry_out(removal)
        except Exception as error:
            log.debug("Not everything was removed, so some rows stay as they are: %s", error)
            self._error = error
        return self

    def _plan(self, indexer: BatchIndexer) -> tuple[Ledger, Removal]:
        """Plans the removal of the ticks of one table that good files have."""
        storage, ticks = self._resources.storage, self._ticks or TickRange(0, MAX_TICK)
        flusher = indexer.flusher(self._run_id)
        assert flusher is not None and flusher.ledger is not None  # noqa: S101  it has a table and cannot be stopped here
        files = [file for file in storage.every_batch(self._run_id) if file.ticks.within(ticks)]
        checked = dict(zip((file.key for file in files), flusher.check(files), strict=True))
        found = joined(result for result in checked.values() if not isinstance(result, str))
        good = found[(found >= ticks.start) & (found <= ticks.end)]
        removal = flusher.ledger.plan_removal(good, ticks, flusher.step)
        self._kept[indexer.name] = ranges_of(removal.stay, flusher.step)
        self._bad[indexer.name] = {key: result for key, result in checked.items() if isinstance(result, str)}
        return flusher.ledger, removal

    def start(self) -> Self:
        if not self._total:
            self.prepare()
        for indexer in self._indexers:
            indexer.start()
        return self

    def stop(self) -> None:
        """Finishes the current work. The rest is indexed by the next call of `ticklake index`."""
        for indexer in self._indexers:
            indexer.ask_to_stop()
        for indexer in self._indexers:
            indexer.stop(timeout=120)

    def wait(self, seconds: float) -> bool:
        """Waits up to `seconds`. Returns whether all tables are done, or raises the error of an indexer."""
        done = all(indexer.join(seconds / len(self._indexers)) for indexer in self._indexers)
        for error in (self._error, *(indexer.error for indexer in self._indexers)):
            if done and error is not None:
                raise error
        return done

    def acknowledge(self) -> list[Acknowledged]:
        """Acknowledges the messages of files that are in the tables, for all groups that fill these very tables.

        So the lag of a group does not count what was indexed here. Call it when no indexer is at work any more.
        """
        return [one for indexer in self._indexers for one in indexer.acknowledge_present(self._run_id, self._step)]

    def progress(self) -> list[Progress]:
        return [self._progress(indexer.name, indexer.monitor) for indexer in self._indexers]

    def under_way(self) -> dict[str, int]:
        """Returns an estimate of the ticks of each table that are done but not committed yet."""
        return {indexer.name: indexer.under_way() for indexer in self._indexers}

    def _progress(self, table: str, monitor: Monitor) -> Progress:
        source = self._sources.get(monitor)
        return Progress(
            table=table,
            ticks=monitor.counter("ticks_processed").value,
            present=monitor.counter("ticks_present").value + (source.ticks_before if source else 0),
            total=self._total,
            rows=monitor.counter("rows_written").value,
            failed=self._bad.get(table, {}) | (source.failed if source else {}),
            kept=self._kept.get(table, []),
        )

    def _open(self, kind: type[BatchIndexer], run_id: str, monitor: Monitor) -> Batches:
        database = self._resources.database
        if database is not None and self._ticks is None and not self._replaces:
            open_batches = Coordinated(database, self._resources, kind, self._options)
            self._sources[monitor] = open_batches(run_id, monitor)
            return self._sources[monitor]
        self._sources[monitor] = StoredBatches(self._resources.storage, run_id, monitor, self._ticks)
        return self._sources[monitor]
