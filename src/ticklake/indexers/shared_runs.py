"""A source of batches for many runs: indexers of one class share the files of each run through a coordinator."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from ticklake.coordination import NO_TABLE, Coordinator, Target
from ticklake.indexers.base import IndexerOptions, IndexerResources
from ticklake.indexers.batch import BatchIndexer
from ticklake.indexers.batches import RunsSource, id_at
from ticklake.indexers.coordinated import CoordinatedBatches
from ticklake.indexers.reopening import (
    changed_files,
    completed_ticks,
    failed_files,
    reopen_missing,
    unverified_files,
)
from ticklake.indexers.runs.pending import Files
from ticklake.lake.errors import DamagedTableFile
from ticklake.monitoring import Monitor
from ticklake.ticks import count
from ticklake.topics import Database, new_consumer_id
from ticklake.world import World

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Coordinated(RunsSource):
    """Opens the batches of a run. All indexers of a class share them through the coordinator in this database."""

    gauges: ClassVar[Sequence[str]] = ("gaps_pending", "batches_found")

    database: Database
    resources: IndexerResources
    kind: type[BatchIndexer]
    options: IndexerOptions

    def __call__(self, run_id: str, monitor: Monitor) -> CoordinatedBatches:
        storage, options = self.resources.storage, self.options
        coordinator = self._coordinator(run_id, monitor)
        damaged: list[DamagedTableFile] = []
        if self.kind.table is not None:
            ledger, changed = (
                self.kind.ledger(self.resources.tables, run_id),
                changed_files(coordinator, storage, run_id),
            )
            damaged = reopen_missing(coordinator, ledger, storage, run_id, changed, monitor)
        batches = CoordinatedBatches(
            coordinator,
            storage,
            run_id,
            monitor,
            poll_interval=options.poll_interval_ms / 1000,
            gap_warning_timeout_ms=options.gap_warning_timeout_ms,
            until_caught_up=options.until_caught_up,
        )
        batches.ticks_before = count(completed_ticks(coordinator), coordinator.step)
        batches.unverified = unverified_files(coordinator, run_id, damaged)
        batches.failed = batches.unverified | failed_files(coordinator, storage, run_id)
        return batches

    def on(self, database: Database) -> Coordinated:
        return replace(self, database=database)

    def count(self, run_id: str) -> int:
        return self.pending.count(run_id)

    @cached_property
    def pending(self) -> Files:
        return Files(self.resources.storage, self.database, self.kind.__name__, self._table_of)

    def _coordinator(self, run_id: str, monitor: Monitor) -> Coordinator:
        """Opens the coordinator. Releases what earlier lives of this node have claimed, so that nobody waits for it."""
        world = World.of(self.resources.storage.read_metadata(run_id))
        life = self.resources.consumer() if self.resources.consumer is not None else ""
        table = NO_TABLE
        if self.kind.table is not None:
            ledger = self.kind.ledger(self.resources.tables, run_id)
            table = Target.at(ledger.id, ledger.location.url)
        coordinator = Coordinator(
            self.database.run(run_id),
            self.kind.__name__,
            step=world.sampling_interval,
            first_tick=world.first_tick,
            table=table,
            lease=self.options.claim_timeout,
            instance=f"{life}:{new_consumer_id()}" if life else None,
            monitor=monitor,
        )
        coordinator.register(id_at)
        # With `is_over`, other lives may be alive: what they hold is free when its lease ends.
        if life and self.resources.is_over is None and (released := coordinator.release_earlier(life)):
            log.info("Run %s: released %d batches that this node held before it was restarted", run_id, released)
        return coordinator

    def _table_of(self, run_id: str) -> Target | None:
        """Returns the table of a run without creating it."""
        if self.kind.table is None:
            return NO_TABLE
        url = self.resources.tables.location(run_id, self.kind.table.name).url
        table_id = id_at(url)
        return None if table_id is None else Target.at(table_id, url)
