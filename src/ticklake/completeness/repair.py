"""Repairs differences between the storage, the topics and the tables of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ticklake.completeness.coordinators import Coordinators
from ticklake.completeness.files import Files
from ticklake.completeness.judging import judge
from ticklake.completeness.messages import Messages
from ticklake.completeness.tables import Tables
from ticklake.defaults import BATCH_TOPIC
from ticklake.indexers.events import TABLE as EVENTS
from ticklake.indexers.reopening import changed_files
from ticklake.storage import Storage
from ticklake.ticks import TickRange


@dataclass(frozen=True)
class TableRepair:
    """The ticks that a table lacks, and the failed batches to retry. Both need a coordinator."""

    table: str
    coordinated: bool
    missing: list[TickRange]
    retried: list[str]


@dataclass(frozen=True)
class Repair:
    """The differences between storage, topic and tables. Unannounced files are announced on `topic`."""

    unannounced: list[str]
    vanished: list[str]
    tables: list[TableRepair]
    topic: str = BATCH_TOPIC


class Repairs:
    """Plans and applies a repair."""

    def __init__(
        self,
        run_id: str,
        storage: Storage,
        files: Files,
        messages: Messages,
        tables: Tables,
        coordinators: Coordinators,
    ) -> None:
        self._run_id, self._storage, self._files = run_id, storage, files
        self._messages, self._tables, self._coordinators = messages, tables, coordinators

    def plan(self, only: Sequence[str], *, retry_failed: bool, create: bool) -> Repair:
        """Returns a repair. Changes nothing. With `create`, no database has to have the run."""
        messages = self._messages.compare(self._files, create=create)
        by_ticks = [name for name in self._tables.names(only) if self._tables.key(name) not in ((), EVENTS.key)]
        tables = [self._table(table, retry_failed) for table in by_ticks]
        return Repair(
            unannounced=messages.unannounced if messages else [],
            vanished=messages.vanished if messages else [],
            tables=[table for table in tables if table.missing or table.retried],
            topic=self._messages.topic,
        )

    def apply(self, repair: Repair) -> None:
        """Announces unannounced files, and reopens the batches whose ticks the tables lack."""
        self._messages.announce(self._storage, repair.unannounced)
        for table in repair.tables:
            if coordinator := self._coordinators.of(table.table):
                coordinator.reopen_missing(table.missing, changed_files(coordinator, self._storage, self._run_id))
            if coordinator and table.retried:
                coordinator.retry_failed()

    def _table(self, table: str, retry_failed: bool) -> TableRepair:
        coverage = judge(self._files.expected, self._tables.contents(table, count_rows=False).numbers)
        coordinator = self._coordinators.of(table)
        failed = [batch.name for batch in coordinator.failed()] if coordinator and retry_failed else []
        return TableRepair(table, coordinator is not None, coverage.missing, failed)
