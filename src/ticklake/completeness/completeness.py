"""Completeness: files, messages, acks, gaps and tables of a run joined into one verdict, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ticklake.completeness.errors import RunNeverAnnounced
from ticklake.completeness.reports import TICKS, FilesVerdict, MessagesVerdict, RunVerdict, TableVerdict
from ticklake.completeness.verdict import Expected, Verdict, judge, judge_batches, overall
from ticklake.contracts import BatchInfo
from ticklake.coordination import (
    NO_TABLE,
    Announced,
    Coordinator,
    Destination,
    Target,
    Topic,
    announced,
    compare,
    destination_of,
    frontiers,
    publish,
    stored,
    topics_with,
)
from ticklake.database.errors import DatabaseDamaged
from ticklake.defaults import BATCH_TOPIC
from ticklake.events.records import BatchRecord, QueueRecords, differences
from ticklake.indexers.batch import BatchIndexer
from ticklake.indexers.coordinated import changed_files
from ticklake.indexers.events import FIRST, QUEUE
from ticklake.indexers.events import TABLE as EVENTS
from ticklake.indexers.registry import INDEXERS
from ticklake.insights import groups_of
from ticklake.lake.empty import Ticks, joined
from ticklake.lake.errors import DamagedCommit, StorageUnavailable, TableUnreadable
from ticklake.lake.metadata import TABLE as METADATA
from ticklake.lake.read import Catalog
from ticklake.lake.verify import (
    TICK,
    Deep,
    compare_deeply,
    covered,
    damaged_files,
    key_of,
    properties_of,
    row_counts,
    table_id,
)
from ticklake.storage import Storage
from ticklake.ticks import TickRange, merged, on_grid, subtract
from ticklake.topics import Database, runs_in
from ticklake.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class TableRepair:
    """What a table lacks, and the failed batches to try again; only a coordinator can do something about either."""

    table: str
    coordinated: bool
    missing: list[TickRange]
    retried: list[str]


@dataclass(frozen=True)
class Repair:
    """What storage, topic and tables do not agree on. `topic` is the one that unannounced files are published to."""

    unannounced: list[str]
    vanished: list[str]
    tables: list[TableRepair]
    topic: str = BATCH_TOPIC


class Completeness:
    """One run, looked at from all sides."""

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
        """With `ended`, a run whose producer has not said so has ended with its last file.

        `events` is the file of the event queue that the table `events` is filled from. `topic` is the one that batches
        are announced on; the default is the one that has such messages.
        """
        self._events = QueueRecords.read(events) if events else None
        self._run_id, self._storage, self._catalog, self._topic = run_id, storage, catalog, topic
        self._databases = [database for database in databases if database is not None]
        self._runs = runs_in(self._databases, run_id)
        self._world = World.of(storage.read_metadata(run_id))
        self.step = self._world.sampling_interval
        # In this order: what is there after the end was recorded is all of the run.
        end = storage.read_completion(run_id)
        self.files = self._stored()
        last = max((ticks.end for ticks in self.files.values()), default=None) if ended else None
        self._assumed = end is None and last is not None
        self.expected = Expected(self.step, list(self.files.values()), last if end is None else end.last_tick)

    def tables(self, only: Sequence[str] = ()) -> list[str]:
        """The tables asked for, or all that the lake has of ticks."""
        found = self._catalog.tables(self._run_id) if self._catalog is not None else []
        return list(only) or [table for table in found if table != METADATA]

    def verify(
        self,
        only: Sequence[str] = (),
        *,
        count_rows: bool = True,
        read_messages: bool = True,
        spark: SparkSession | None = None,
    ) -> RunVerdict:
        """With a Spark session every file is decoded again, and each tick's rows compared with the table's."""
        messages = self._examined(deeply=spark is not None) if read_messages else None
        keys = self._keys(only)
        tables = [
            self._event_table(name, count_rows, spark) if key == EVENTS.key else self._table(name, count_rows, spark)
            for name, key in keys.items()
            if key
        ]
        uncompared = [table.table for table in tables if spark is not None and table.deep is None]
        unjudged = [name for name, key in keys.items() if not key]
        verdicts = [table.verdict for table in tables]
        # Events tell nothing of ticks: a run is not in the lake because its events are.
        unindexed = not only and bool(self.files) and not any(table.unit == TICKS for table in tables)
        if unindexed:
            verdicts.append(Verdict.INCOMPLETE)
        if messages is not None and messages.damaged:
            verdicts.append(Verdict.INCOMPLETE)
        verdict = overall(self.expected.last_tick is not None, verdicts)
        return RunVerdict(self._run_id, verdict, self._files(), tables, messages, unjudged, unindexed, uncompared)

    def plan(self, only: Sequence[str] = (), *, retry_failed: bool = False, create: bool = False) -> Repair:
        """What would be done, without doing it. `create` allows databases none of which has the run."""
        if self._databases and not self._runs and not create:
            raise RunNeverAnnounced(run_id=self._run_id)
        messages = self._messages(self._announcing.existing()) if self._databases else None
        counted_by_ticks = [name for name in self.tables(only) if self._key(name) not in ((), EVENTS.key)]
        tables = [self._repair(table, retry_failed) for table in counted_by_ticks]
        return Repair(
            unannounced=messages.unannounced if messages else [],
            vanished=messages.vanished if messages else [],
            tables=[table for table in tables if table.missing or table.retried],
            topic=self._announcing.topic if self._databases else BATCH_TOPIC,
        )

    def apply(self, repair: Repair) -> None:
        """Announces files that the topic never heard of, and has the coordinator look for what tables lack."""
        if self._databases and repair.unannounced:
            run, topic = self._announcing.made()
            publish(run, self._storage, repair.unannounced, topic)
        for table in repair.tables:
            if coordinator := self.coordinator(table.table):
                coordinator.search_again(table.missing, changed_files(coordinator, self._storage, self._run_id))
            if coordinator and table.retried:
                coordinator.retry_failed()

    def coordinator(self, table: str) -> Coordinator | None:
        """The one at work on a table, where there is one."""
        kind, target = _kinds().get(table), Target(self._id_of(table))
        for run in self._runs:
            known = frontiers(run)
            for indexer_class, id_ in known:
                if id_ and id_ == target.table_id:
                    return Coordinator(run, indexer_class, step=self.step, table=target)
            # Until its indexer is next started, what was recorded before tables had ids has none.
            if kind is not None and (kind.__name__, NO_TABLE.table_id) in known:
                return Coordinator(run, kind.__name__, step=self.step, table=NO_TABLE)
        return None

    def _id_of(self, table: str) -> str:
        """The table's own id; none where there is no table, or one that cannot be read."""
        try:
            return table_id(self._directory(table)) or ""
        except TableUnreadable:
            return ""

    def _repair(self, table: str, retry_failed: bool) -> TableRepair:
        coverage = judge(self.expected, covered(self._directory(table)).ticks)
        coordinator = self.coordinator(table)
        failed = [batch.name for batch in coordinator.failed()] if coordinator and retry_failed else []
        return TableRepair(table, coordinator is not None, coverage.missing, failed)

    def _table(self, table: str, count_rows: bool, spark: SparkSession | None) -> TableVerdict:
        directory = self._directory(table)
        counts, found, unreadable = None, np.empty(0, np.int64), ""
        try:
            counts = row_counts(directory) if count_rows else None
            found = covered(directory).ticks
        except (TableUnreadable, DamagedCommit) as error:
            if not count_rows:
                # A drawing of what is there cannot show what nobody knows.
                raise
            unreadable = str(error)
        deep = self._deep(table, spark) if spark is not None else None
        damaged = self._damaged(table) if spark is not None and deep is None else {}
        flaws = (counts.duplicated if counts else 0) + (deep.flaws if deep else 0) + bool(unreadable) + len(damaged)
        present = self._known(joined([found, *map(self._numbers, deep.without_rows if deep else [])]))
        coordinator = self.coordinator(table)
        coverage = judge(replace(self.expected, held=self._held(coordinator)), present, flaws)
        return TableVerdict(
            table=table,
            step=self.step,
            coverage=coverage,
            rows=int(counts.rows.sum()) if counts else None,
            duplicated=counts.duplicated if counts else 0,
            duplicates=counts.duplicates if counts else [],
            gaps=coordinator.gaps() if coordinator else [],
            failed=coordinator.failed() if coordinator else [],
            frontier=coordinator.frontier() if coordinator else None,
            deep=deep,
            unreadable=unreadable,
            damaged=damaged,
        )

    def _held(self, coordinator: Coordinator | None) -> list[TickRange]:
        """What the files hold: what their names promise, less what was found missing when they were read."""
        short = {
            f"{self._run_id}/{one.name}": one.has(self.step) for one in (coordinator.short() if coordinator else [])
        }
        return [part for key, ticks in self.files.items() for part in short.get(key, [ticks])]

    def _event_table(self, table: str, count_rows: bool, spark: SparkSession | None) -> TableVerdict:
        """Judged by itself and by its queue: batch files tell nothing of events."""
        directory = self._directory(table)
        counts, found, unreadable = None, np.empty(0, np.int64), ""
        properties: Mapping[str, str] = {}
        try:
            properties = properties_of(directory)
            counts = row_counts(directory) if count_rows else None
            found = covered(directory).ticks
        except (TableUnreadable, DamagedCommit) as error:
            if not count_rows:
                raise
            unreadable = str(error)
        first, others, disagreements = int(properties.get(FIRST, 1)), list[int](), list[str]()
        known: dict[int, BatchRecord] = {}
        if self._events and properties.get(QUEUE, self._events.queue_id) != self._events.queue_id:
            disagreements = [f"its events are those of another queue than {self._events.path}"]
        elif self._events:
            records, others = self._events.of_run(self._run_id)
            # Without a table, only the queue can say with which batch the run begins.
            first = min([first, *_handed_out(records)]) if properties else min(records, default=1)
            known = {number: record for number, record in records.items() if number >= first}
            rows = dict(zip(counts.ticks.tolist(), counts.rows.tolist(), strict=True)) if counts else {}
            disagreements = differences(known, rows)
        statuses = {number: record.status for number, record in known.items()}
        damaged = self._damaged(table) if spark is not None else {}
        flaws = (counts.duplicated if counts else 0) + len(disagreements) + bool(unreadable) + len(damaged)
        return TableVerdict(
            table=table,
            step=1,
            coverage=judge_batches(found, statuses, flaws, first=first, others=others),
            rows=int(counts.rows.sum()) if counts else None,
            duplicated=counts.duplicated if counts else 0,
            duplicates=counts.duplicates if counts else [],
            unreadable=unreadable,
            unit="event batches",
            disagreements=disagreements,
            damaged=damaged,
        )

    def _keys(self, only: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """The tables to judge and their keys: with a queue also `events`, whether or not there is such a table."""
        keys = {name: self._key(name) for name in self.tables(only)}
        judged = self._events is not None and (not only or EVENTS.name in only)
        return keys | ({EVENTS.name: EVENTS.key} if judged else {})

    def _key(self, table: str) -> tuple[str, ...]:
        """What a table says of its key. One that cannot be read is one of ticks: then its verdict says why."""
        try:
            return key_of(self._directory(table))
        except TableUnreadable:
            return (TICK,)

    def _examined(self, deeply: bool) -> MessagesVerdict | None:
        """A database that is damaged is not asked any further: tables and files can be judged without it."""
        try:
            for run in self._runs if deeply else []:
                run.check()
            return self._messages(self._announced_on())
        except DatabaseDamaged as error:
            self._runs = []
            return MessagesVerdict(0, [], [], 0, [], str(error))

    def _deep(self, table: str, spark: SparkSession) -> Deep | None:
        kind = _kinds().get(table)
        if kind is None or not (self._directory(table) / "_delta_log").is_dir():
            return None
        work = kind.work(self._storage, self._world, self._directory(table))
        deep = compare_deeply(spark, work, [self._storage.batch(key) for key in self.files])
        return replace(deep, unproven=subtract(deep.unproven, self._news(), self.step)) if deep.unproven else deep

    def _damaged(self, table: str) -> dict[str, str]:
        """Of a table whose rows cannot be made again here, the files themselves can still be checked."""
        directory = self._directory(table)
        return damaged_files(directory, self._key(table)[0]) if (directory / "_delta_log").is_dir() else {}

    def _known(self, present: Ticks) -> Ticks:
        """These ticks without those behind the last one expected that came while the run was looked at."""
        end = self.expected.ticks.end
        if self.expected.last_tick is not None or not (present > end).any():
            return present
        for ticks in self._news():
            present = present[(present <= end) | (present < ticks.start) | (present > ticks.end)]
        return present

    def _news(self) -> list[TickRange]:
        """The ticks of files that came after the others were listed. Tables may have them by now, as they should."""
        later = [on_grid(ticks, self.step) for key, ticks in self._stored().items() if key not in self.files]
        return merged(later, self.step)

    def _stored(self) -> dict[str, TickRange]:
        try:
            return stored(self._storage, self._run_id)
        except OSError as error:
            raise StorageUnavailable(storage=self._storage.url, reason=error) from error

    def _files(self) -> FilesVerdict:
        ranges = sorted(self.files.values())
        end = self.expected.last_tick
        beyond = [key for key, ticks in self.files.items() if end is not None and ticks.end > end]
        off = [key for key, ticks in self.files.items() if ticks.start % self.step or ticks.end % self.step]
        folders = {self._run_id, *(key.rpartition("/")[0] for key in self.files)}
        changed = max((self._storage.changed_at(folder) or 0 for folder in folders), default=0)
        return FilesVerdict(
            files=len(ranges),
            ended=end is not None,
            last_tick=end,
            silent_since=datetime.fromtimestamp(changed // 10**9, UTC) if changed else None,
            overlapping=sum(later.start <= reach for later, reach in _reached(ranges)),
            lost=self.expected.lost,
            misfits=[key for key in self.files if key in {*off, *beyond}],
            beyond=beyond,
            assumed=self._assumed,
        )

    def _messages(self, topics: Sequence[Topic]) -> MessagesVerdict | None:
        if not self._databases:
            return None
        told = [announced(run, topic) for run, topic in topics]
        keys = {key: ticks for one in told for key, ticks in one.keys.items()}
        removed = frozenset(key for one in told for key in one.removed)
        heard = Announced(keys, sum(one.messages for one in told), sum(one.undecodable for one in told), removed)
        difference, end = compare(self.files, heard), self.expected.last_tick
        since = self._stored() if difference.vanished else {}
        return MessagesVerdict(
            messages=heard.messages,
            unannounced=difference.unannounced,
            vanished=[key for key in difference.vanished if key not in since],
            undecodable=difference.undecodable,
            groups=groups_of(self._databases, self._run_id),
            beyond=[key for key, ticks in heard.keys.items() if end is not None and ticks.end > end],
            removed=len(heard.removed),
        )

    @cached_property
    def _announcing(self) -> Destination:
        """The topic that files are announced on."""
        return destination_of(self._databases, self._run_id, BatchInfo, BATCH_TOPIC, self._topic)

    def _announced_on(self) -> list[Topic]:
        """Every topic that tells of files."""
        if self._topic is not None:
            return [Topic(run, self._topic) for run in self._runs]
        usual = [Topic(run, BATCH_TOPIC) for run in self._runs]
        return usual + [one for one in topics_with(self._runs, BatchInfo) if one.name != BATCH_TOPIC]

    def _numbers(self, ticks: TickRange) -> Ticks:
        return np.arange(ticks.start, ticks.end + 1, self.step, dtype=np.int64)

    def _directory(self, table: str) -> Path:
        return Path(self._catalog.root if self._catalog is not None else ".") / self._run_id / table


def _kinds() -> dict[str, type[BatchIndexer]]:
    """The indexers that come with TickLake, by their tables."""
    return {kind.table.name: kind for kind in INDEXERS.values() if issubclass(kind, BatchIndexer) and kind.table}


def _handed_out(records: Mapping[int, BatchRecord]) -> list[int]:
    """The batches of which it is known which run they were handed to."""
    return [number for number, record in records.items() if record.run_id]


def _reached(ranges: Sequence[TickRange]) -> Iterator[tuple[TickRange, int]]:
    """Each range, and how far those before it reach."""
    reach = -1
    for ticks in ranges:
        yield ticks, reach
        reach = max(reach, ticks.end)
