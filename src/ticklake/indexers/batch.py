"""The batch indexer: loop, buffering, acks and errors. A subclass only defines its rows."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from ticklake.indexers.base import Indexer, IndexerOptions, IndexerResources
from ticklake.indexers.batches import Batches, Pending, RunsSource
from ticklake.indexers.buffer import TickBuffer
from ticklake.indexers.components import Components, Idempotency, MetadataReading, TickBuffering, metadata_of
from ticklake.indexers.errors import RowsMissing, SparkNeeded
from ticklake.indexers.flush_loop import FlushLoop
from ticklake.indexers.subscription import Acknowledged, acknowledge_present, subscribe
from ticklake.lake.errors import TableReplaced
from ticklake.lake.flush import Flusher, Work, run_job
from ticklake.lake.lake import Lake
from ticklake.lake.ledger import Ledger
from ticklake.lake.table import Table
from ticklake.monitoring import Monitor
from ticklake.storage import Storage
from ticklake.world import World

if TYPE_CHECKING:
    from ticklake.lake.delta import Location

log = logging.getLogger(__name__)

_COUNTERS = ("flushes", "batches_processed", "batches_skipped", "batches_failed", "ticks_processed", "ticks_present",
             "rows_written", "task_ms", "metadata_reads", "metadata_not_found", "read_errors")  # fmt: skip


class BatchIndexer(Indexer):
    """Turns the ticks of batch files into rows of `table`, each key exactly once.

    A subclass sets `table` and `reads`, the fields of a tick that it needs, and implements `rows`, a pure function that
    Spark's workers call. An indexer that only counts has no table and implements `observe`.
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
        """`batches_of` opens another source of batches than the topic, such as the storage."""
        super().__init__(name, resources, options)
        self._batches_of = batches_of
        self._batches: Batches | None = None
        for counter in _COUNTERS:
            self.monitor.counter(counter)
        for latency in ("flush", "get_metadata_latency", "has_metadata_latency"):
            self.monitor.percentiles(latency)
        self._loop: FlushLoop | None = None
        self._waiting_since: float | None = None
        self._first_waits: dict[str, float] = {}
        """When runs began to wait for their metadata, over all of their turns."""
        if self.source is not None:
            self.gauges_of_runs = self.source.gauges
        if resources.sharing is not None and self.table is not None:
            resources.sharing.expect(self.table.name)

    @staticmethod
    def rows(ticks: pa.RecordBatch, world: World | None) -> pa.RecordBatch:
        """Returns the rows of the table for these ticks. `world` is None for an indexer that reads no metadata."""
        raise RowsMissing()

    @staticmethod
    def observe(ticks: pa.RecordBatch) -> Mapping[str, int]:
        """Returns counts of these ticks by name. Their sums become counters of the indexer."""
        return {}

    def components(self) -> Components:
        """Returns the components of this indexer. Default: all; idempotency only with `enable_idempotency`."""
        options = self.options
        return Components(
            metadata=MetadataReading(options.poll_interval_ms, options.max_poll_duration_ms),
            buffering=TickBuffering(options.insert_batch_size, options.flush_timeout_ms),
            idempotency=Idempotency() if options.enable_idempotency else None,
        )

    @property
    def pending(self) -> Pending:
        return super().pending if self.source is None else self.source.pending

    @property
    def source(self) -> RunsSource | None:
        """The source of its batches, if that is neither a topic nor the files of one run."""
        return self._batches_of if isinstance(self._batches_of, RunsSource) else None

    def check_run(self, run_id: str) -> None:
        if self.source is None:
            super().check_run(run_id)

    def wake(self) -> None:
        if self._batches is not None:
            self._batches.wake()

    def under_way(self) -> int:
        """Returns an estimate of the ticks that are done but not committed yet."""
        return sum(one._loop.under_way() for one in self._at_work() if one._loop is not None)

    @property
    def reading(self) -> bool:
        """Whether the indexer has the metadata and reads batches."""
        return any(one._loop is not None for one in self._at_work())

    @property
    def idle_seconds(self) -> float | None:
        if self._loop is not None:
            return self._loop.idle_seconds
        since = self._waiting_since
        return None if since is None else time.monotonic() - since

    def _at_work(self) -> list[BatchIndexer]:
        """This indexer, or its indexers of single runs."""
        children = self._following.children.values() if self._following is not None else [self]
        return [one for one in children if isinstance(one, BatchIndexer)]

    def _copy(self, resources: IndexerResources, options: IndexerOptions) -> BatchIndexer:
        source = self._batches_of
        if isinstance(source, RunsSource) and resources.database is not None:
            source = source.on(resources.database)
        child = type(self)(self.name, resources, options, source)
        child._first_waits = self._first_waits
        return child

    def index_run(self, run_id: str) -> None:
        while True:
            try:
                return self._index_run(run_id)
            except TableReplaced as error:
                # Start again, because the group and the coordinator must accept the new table id.
                self.monitor.errors.record("TABLE_REPLACED", error)
                log.warning("TABLE_REPLACED, starting again with the new table: %s", error)

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
        """Returns the flusher of a run; None if the indexer is stopped before the metadata exists."""
        metadata, world = self.components().metadata, None
        if metadata is not None:
            since = self._first_waits.setdefault(run_id, time.monotonic()) if self._branch is not None else None
            read = metadata_of(self.resources, run_id)
            world = metadata.load(read, run_id, self._wait_for_metadata, self.monitor, since)
            if world is None:
                return None
            self._first_waits.pop(run_id, None)
        if self.resources.spark is None:
            raise SparkNeeded(name=self.name)
        ledger = self.ledger(self.resources.tables, run_id) if self.table else None
        sharing = self.resources.sharing
        jobs = sharing.run_job if sharing else run_job
        work = self.work(self.resources.storage, world, ledger.location if ledger else None)
        return Flusher(self.resources.spark, work, ledger, jobs)

    def _wait_for_metadata(self, seconds: float) -> bool:
        """Waits as `wait` does. Meanwhile this run has no work, and other runs may have its place."""
        if self._waiting_since is None:
            self._waiting_since = time.monotonic()
        return self.wait(seconds)

    def acknowledge_present(self, run_id: str, step: int) -> list[Acknowledged]:
        """Acknowledges messages of the groups that fill this table, if the table has all ticks of their files."""
        if self.table is None:
            return []
        return acknowledge_present(self, run_id, self.ledger(self.resources.tables, run_id), step)

    def _open_batches(self, run_id: str, components: Components, ledger: Ledger | None, step: int) -> Batches:
        if self._batches_of is not None:
            return self._batches_of(run_id, self.monitor)
        mark = components.idempotency is not None
        open_ledger = partial(self.ledger, self.resources.tables, run_id) if self.table else None
        return subscribe(self, run_id, ledger, open_ledger, step, mark=mark)

    @classmethod
    def ledger(cls, lake: Lake, run_id: str) -> Ledger:
        """Opens the table of a run. The table records this class in the form that `ticklake index --table` accepts."""
        assert cls.table is not None  # noqa: S101  only called for indexers with a table
        is_importable = cls.__module__ != "__main__" and cls.__qualname__.isidentifier()
        return lake.ledger(run_id, cls.table, f"{cls.__module__}:{cls.__qualname__}" if is_importable else "")

    @classmethod
    def work(cls, storage: Storage, world: World | None, location: Location | None) -> Work:
        """Returns the work for the tasks that index batch files, or that check them."""
        return Work(
            flush_id="",
            storage=storage,
            world=world,
            reads=cls.reads,
            table=cls.table,
            location=location,
            rows=cls.rows if cls.table else None,
            observe=cls.observe,
        )


def _buffer(components: Components, step: int) -> TickBuffer:
    if components.buffering is not None:
        return components.buffering.buffer(step)
    # Without buffering each tick is flushed separately.
    return TickBuffer(insert_batch_size=1, flush_timeout=0.0, step=step)
