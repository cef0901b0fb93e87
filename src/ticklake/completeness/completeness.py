"""Completeness: one verdict on the files, messages, gaps and tables of a run, and its repair."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ticklake.completeness.coordinators import Coordinators
from ticklake.completeness.event_tables import EventTables
from ticklake.completeness.files import Files
from ticklake.completeness.messages import Messages
from ticklake.completeness.repair import Repair, Repairs
from ticklake.completeness.tables import Tables
from ticklake.completeness.tick_tables import TickTables
from ticklake.completeness.verdicts import RunVerdict, TableVerdict
from ticklake.indexers.events import TABLE as EVENTS
from ticklake.lake.read import Catalog
from ticklake.storage import Storage
from ticklake.topics import Database
from ticklake.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Completeness:
    """Verifies and repairs one run."""

    def __init__(
        self,
        run_id: str,
        storage: Storage,
        catalog: Catalog | None,
        *databases: Database | None,
        ended: bool = False,
        events: Path | None = None,
        topic: str | None = None,
    ) -> None:
        """With `ended`, a run without a recorded end is treated as ended with its last file.

        `events` is the file of the event queue of the table `events`. `topic` announces the batches; the default is the
        topic that has such messages.
        """
        self._run_id = run_id
        self._messages = Messages(run_id, [database for database in databases if database is not None], topic)
        self._tables = Tables(run_id, catalog, self._messages.runs)
        self._event_tables = EventTables(run_id, self._tables, events)
        self._metadata = storage.read_metadata(run_id)
        world = World.of(self._metadata)
        self.step = world.sampling_interval
        self._files = Files(run_id, storage, world, ended=ended)
        self.files, self.expected = self._files.by_key, self._files.expected
        self._coordinators = Coordinators(self._messages, self._tables, self.step)
        self._tick_tables = TickTables(storage, world, self._files, self._tables, self._coordinators)
        self._repairs = Repairs(run_id, storage, self._files, self._messages, self._tables, self._coordinators)

    def verify(
        self,
        only: Sequence[str] = (),
        *,
        count_rows: bool = True,
        read_messages: bool = True,
        spark: SparkSession | None = None,
    ) -> RunVerdict:
        """Returns the verdict on the run. With a Spark session, the rows of all ticks are compared with the files."""
        deeply = spark is not None
        messages = self._messages.examine(self._files, deeply=deeply) if read_messages else None
        keys = self._keys(only)
        tables = [self._judged(name, key, count_rows, spark) for name, key in keys.items() if key]
        unjudged = [name for name, key in keys.items() if not key]
        metadata = self._tables.metadata(only, self._metadata)
        return RunVerdict.of(
            self._run_id,
            self._files.verdict(),
            tables,
            messages,
            unjudged,
            metadata,
            self._tables.copies(),
            whole=not only,
            deeply=deeply,
        )

    def plan(self, only: Sequence[str] = (), *, retry_failed: bool = False, create: bool = False) -> Repair:
        """Returns a repair without applying it. With `create`, no database has to have the run."""
        return self._repairs.plan(only, retry_failed=retry_failed, create=create)

    def apply(self, repair: Repair) -> None:
        """Announces unannounced files, and reopens the batches whose ticks the tables lack."""
        self._repairs.apply(repair)

    def _keys(self, only: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Returns the tables to judge, with their keys."""
        keys = {name: self._tables.key(name) for name in self._tables.names(only)}
        return keys | dict.fromkeys(self._event_tables.expected(only), EVENTS.key)

    def _judged(self, table: str, key: tuple[str, ...], count_rows: bool, spark: SparkSession | None) -> TableVerdict:
        if key == EVENTS.key:
            return self._event_tables.judge(table, count_rows=count_rows, deeply=spark is not None)
        return self._tick_tables.judge(table, count_rows=count_rows, spark=spark)
