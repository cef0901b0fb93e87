"""Compaction in the background: merges the small files of flushes during indexing."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import ClassVar

from ticklake.checks.places import lake_path
from ticklake.lake.delta import Location
from ticklake.lake.errors import LakeNotFound, RunFolderUnreadable
from ticklake.lake.read import Catalog
from ticklake.lake.upkeep import Compaction, Policy, open_table
from ticklake.services.base import Service

log = logging.getLogger(__name__)


class CompactionService(Service):
    """Compacts the tables of every run of a lake, or of one run. An unchanged table costs almost nothing."""

    background: ClassVar[bool] = True

    def __init__(
        self,
        lake: str | Path,
        interval: float = 30.0,
        *,
        run_id: str | None = None,
        policy: Policy | None = None,
        name: str = "compaction-service",
    ) -> None:
        super().__init__(name)
        self._lake, self._interval, self._only = lake_path(lake), interval, run_id
        self._policy = policy or Policy()
        self._compactions: dict[Location, Compaction | None] = {}

    def run(self) -> None:
        while self.proceed():
            self.compact_all()
            self.wait(self._interval)

    def compact_all(self) -> None:
        """Compacts all tables once. Ends early if the service is stopped or paused."""
        for table in self._tables():
            if self.interrupted():
                return
            try:
                self._compact(table)
            except Exception as error:  # the other tables can still be compacted
                # Reopen it next time: the table may have been replaced.
                self._compactions.pop(table, None)
                self.monitor.errors.record("COMPACTION_FAILED", error, str(table))
                log.warning("Could not compact %s: %s", table, error)

    def _tables(self) -> list[Location]:
        try:
            catalog = Catalog(self._lake)
        except LakeNotFound:
            # The first table creates the directory.
            return []
        runs = [self._only] if self._only else catalog.runs()
        return [catalog.location(run, table) for run in runs for table in self._tables_of(catalog, run)]

    def _tables_of(self, catalog: Catalog, run: str) -> list[str]:
        try:
            return catalog.tables(run)
        except RunFolderUnreadable as error:
            self.monitor.errors.record("COMPACTION_FAILED", error, run)
            log.warning("Could not compact the tables of run %s: %s", run, error)
            return []

    def _compact(self, table: Location) -> None:
        if table not in self._compactions:
            if not table.has_commits():
                return  # an indexer is about to create it
            ledger = open_table(table, table.run_id)
            self._compactions[table] = Compaction(ledger, self._policy) if ledger else None
        compaction = self._compactions[table]
        for step in compaction.steps() if compaction else ():
            self.monitor.counter("files_merged").add(step.files_removed)
            self.monitor.counter("files_written").add(step.files_added)
            self.monitor.counter("bytes_written").add(step.bytes_added)
            log.debug("Merged %d files of %s into one", step.files_removed, table)
            if self.interrupted():
                return
