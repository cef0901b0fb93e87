"""The batch indexer: all of the loop, the buffering, the acks, the errors. A subclass only says what its rows are."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from ticklake.contracts import SimulationMetadata
from ticklake.coordination import NO_TABLE, Target, bind
from ticklake.defaults import BATCH_TOPIC
from ticklake.indexers.base import Indexer, IndexerOptions, IndexerResources
from ticklake.indexers.batches import Batches, TopicBatches
from ticklake.indexers.buffer import TickBuffer
from ticklake.indexers.components import Components, Idempotency, MetadataReading, TickBuffering, stored_metadata
from ticklake.indexers.errors import DatabaseNeeded, RowsMissing, SparkNeeded
from ticklake.indexers.loop import FlushLoop
from ticklake.lake.errors import TableReplaced, TableUnreadable
from ticklake.lake.flush import Flusher, Work, run_job
from ticklake.lake.lake import Lake
from ticklake.lake.ledger import Ledger
from ticklake.lake.metadata import TABLE, read_metadata
from ticklake.lake.table import Table
from ticklake.lake.verify import table_id
from ticklake.monitoring import Monitor
from ticklake.storage import Storage
from ticklake.ticks import TickRange, on_grid
from ticklake.world import World

log = logging.getLogger(__name__)

_COUNTERS = ("flushes", "batches_processed", "batches_skipped", "batches_failed", "ticks_processed", "ticks_present",
             "rows_written", "task_ms", "metadata_reads", "metadata_not_found", "read_errors")  # fmt: skip


class BatchIndexer(Indexer):
    """Turns the ticks of batch files into rows of `table`, each key exactly once.

    A subclass names its `table`, the fields of a tick it `reads`, and writes `rows`, a pure function of ticks that runs
    on Spark's workers. One that only counts has no table, and writes `observe`.
    """

    table: ClassVar[Table | None] = None
    reads: ClassVar[tuple[str, ...]] = ("tick_number",)

    def __init__(
        self,
        name: str,
        resources: IndexerResources,
        options: IndexerOptions | None = None,
        batches_of: Callable[[str, Monitor], Batches] | None = None,
    ) -> None:
        """`batches_of` gives the batches of a run from elsewhere than its topic, such as storage itself."""
        super().__init__(name, resources, options)
        self._batches_of = batches_of
        self._batches: Batches | None = None
        for counter in _COUNTERS:
            self.monitor.counter(counter)
        for latency in ("flush", "get_metadata_latency", "has_metadata_latency"):
            self.monitor.percentiles(latency)
        self._loop: FlushLoop | None = None
        if resources.sharing is not None and self.table is not None:
            resources.sharing.expect(self.table.name)

    @staticmethod
    def rows(ticks: pa.RecordBatch, world: World | None) -> pa.RecordBatch:
        """The table's rows for these ticks. `world` is None for an indexer that reads no metadata."""
        raise RowsMissing()

    @staticmethod
    def observe(ticks: pa.RecordBatch) -> Mapping[str, int]:
        """What to count of these ticks; the sums become counters of the indexer."""
        return {}

    def components(self) -> Components:
        """What this indexer makes use of: by default everything, idempotency where it is switched on."""
        options = self.options
        return Components(
            metadata=MetadataReading(options.poll_interval_ms, options.max_poll_duration_ms),
            buffering=TickBuffering(options.insert_batch_size, options.flush_timeout_ms),
            idempotency=Idempotency() if options.enable_idempotency else None,
        )

    def wake(self) -> None:
        if self._batches is not None:
            self._batches.wake()

    def under_way(self) -> int:
        """About how many ticks are done that are not committed yet."""
        return self._loop.under_way() if self._loop else 0

    @property
    def reading(self) -> bool:
        """Whether it has all that it needs, and looks for batches."""
        return self._loop is not None

    def index_run(self, run_id: str) -> None:
        while True:
            try:
                return self._index_run(run_id)
            except TableReplaced as error:
                # The group and the coordinator know a table by its id: they are told of this one, or refuse it.
                self.monitor.errors.record("TABLE_REPLACED", error)
                log.warning("TABLE_REPLACED, beginning again with the one that is there: %s", error)

    def _index_run(self, run_id: str) -> None:
        flusher = self.flusher(run_id)
        if flusher is None:
            return
        components = self.components()
        buffer = _buffer(components, flusher.step)
        self.monitor.gauge("current_buffer_size", lambda: buffer.ticks)
        self.monitor.gauge("claimed_batches_pending", lambda: len(buffer))
        self._batches = self._open_batches(run_id, components, flusher.ledger, flusher.step)
        try:
            self._loop = FlushLoop(self._batches, buffer, flusher, self.monitor, self, self.options.until_caught_up)
            self._loop.run()
        finally:
            self._batches.close()

    def flusher(self, run_id: str) -> Flusher | None:
        """What makes and commits the rows of a run; None if the indexer is stopped before the run's metadata come."""
        metadata, world = self.components().metadata, None
        if metadata is not None:
            world = metadata.load(self._metadata_of(run_id), run_id, self.wait, self.monitor)
            if world is None:
                return None
        if self.resources.spark is None:
            raise SparkNeeded(name=self.name)
        ledger = self.ledger(self.resources.tables, run_id) if self.table else None
        sharing = self.resources.sharing
        jobs = sharing.run_job if sharing else run_job
        work = self.work(self.resources.storage, world, ledger.directory if ledger else None)
        return Flusher(self.resources.spark, work, ledger, jobs)

    def _metadata_of(self, run_id: str) -> Callable[[], SimulationMetadata | None]:
        """From the run's file, once the table that is made of it is there; without a lake, from the file alone.

        The coordinator and `verify` go by the file too: if somebody mends it, all of them see the same.
        """
        storage, lake = self.resources.storage, self.resources.lake

        def read() -> SimulationMetadata | None:
            indexed = read_metadata(lake.directory(run_id, TABLE), run_id) if lake is not None else None
            return indexed and (stored_metadata(storage, run_id) or indexed)

        return read if lake is not None else partial(stored_metadata, storage, run_id)

    def _open_batches(self, run_id: str, components: Components, ledger: Ledger | None, step: int) -> Batches:
        if self._batches_of is not None:
            return self._batches_of(run_id, self.monitor)
        topic = self.resources.topic or BATCH_TOPIC
        if self.resources.database is None:
            raise DatabaseNeeded(name=self.name, topic=topic)
        run, group = self.resources.database.run(run_id), self.resources.group or self.name
        table = Target.at(ledger.id, ledger.directory) if ledger else NO_TABLE
        bind(run, topic, group, type(self).__name__, table, id_at)
        reader = run.reader(
            topic,
            group=group,
            claim_timeout=self.options.claim_timeout,
            max_delivery_attempts=self.options.max_delivery_attempts,
        )
        # Done is done for one group and one table: another lake, or a table made anew, has nothing yet.
        doer = f"{type(self).__name__}/{reader.group}/{ledger.id if ledger else ''}"
        processed = run.processed(doer) if components.idempotency else None
        lease = self.options.claim_timeout
        holds = self._holds(run_id, step) if processed and self.table else None
        return TopicBatches(run, reader, lease, self.resources.storage, self.monitor, processed, holds)

    def _holds(self, run_id: str, step: int) -> Callable[[TickRange], bool]:
        """Asks the table by a ledger of its own: the flusher's is in use meanwhile."""
        ledger = self.ledger(self.resources.tables, run_id)

        def holds(ticks: TickRange) -> bool:
            ledger.refresh()
            found, wanted = ledger.present([ticks]), on_grid(ticks, step)
            return int((found % step == 0).sum()) == wanted.count(step)

        return holds

    @classmethod
    def ledger(cls, lake: Lake, run_id: str) -> Ledger:
        """Opens the table of a run. It records who fills it, as `ticklake index --table` would call it."""
        assert cls.table is not None  # noqa: S101  nobody asks for a table that there is not
        is_importable = cls.__module__ != "__main__" and cls.__qualname__.isidentifier()
        return lake.ledger(run_id, cls.table, f"{cls.__module__}:{cls.__qualname__}" if is_importable else "")

    @classmethod
    def work(cls, storage: Storage, world: World | None, directory: Path | None) -> Work:
        """What its tasks are told, wherever a batch file is to be indexed or to be judged as if it were."""
        return Work(
            flush_id="",
            storage=storage,
            world=world,
            reads=cls.reads,
            table=cls.table,
            directory=str(directory) if directory else "",
            rows=cls.rows if cls.table else None,
            observe=cls.observe,
        )


def id_at(directory: Path) -> str | None:
    """The id of the table in a folder; None if there is none, or none that anybody could fill."""
    try:
        return table_id(directory)
    except TableUnreadable:
        return None


def _buffer(components: Components, step: int) -> TickBuffer:
    if components.buffering is not None:
        return components.buffering.buffer(step)
    # Without buffering each tick is flushed on its own.
    return TickBuffer(insert_batch_size=1, flush_timeout=0.0, step=step)
