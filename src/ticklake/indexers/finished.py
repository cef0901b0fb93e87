"""Indexing a finished run straight from its files: no topic, no claims, the same flush and the same guarantee."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

from ticklake.errors import NothingToIndex
from ticklake.indexers.base import IndexerOptions, IndexerResources
from ticklake.indexers.batch import BatchIndexer
from ticklake.indexers.batches import StoredBatches
from ticklake.indexers.metadata import MetadataIndexer
from ticklake.monitoring import Monitor
from ticklake.storage.files import BatchFile, Storage
from ticklake.ticks import TickRange
from ticklake.world import World


@dataclass(frozen=True)
class Progress:
    """How far one table is, in ticks; `present` of them were there before."""

    table: str
    ticks: int
    present: int
    total: int
    rows: int
    failed: dict[str, str]


class FinishedRun:
    """All tables of one run at once: they share the cores, and each keeps its own progress."""

    def __init__(
        self,
        resources: IndexerResources,
        run_id: str,
        kinds: Iterable[type[BatchIndexer]],
        ticks: TickRange | None = None,
        insert_batch_size: int = 1000,
    ) -> None:
        self._resources, self._run_id, self._ticks = resources, run_id, ticks
        self._sources: dict[Monitor, StoredBatches] = {}
        self._total = 0
        options = IndexerOptions(run_id, insert_batch_size=insert_batch_size, until_caught_up=True)
        self._indexers = [kind(kind.table.name, resources, options, self._open) for kind in kinds if kind.table]

    def start(self) -> Self:
        storage = self._resources.storage
        step = World.of(storage.read_metadata(self._run_id)).sampling_interval
        self._total = sum(file.ticks.within(self._ticks).count(step) for file in _files(storage, self._run_id))
        if not self._total:
            raise NothingToIndex(run_id=self._run_id, storage=storage.url)
        MetadataIndexer("metadata-indexer", self._resources).write(self._run_id)
        for indexer in self._indexers:
            indexer.start()
        return self

    def stop(self) -> None:
        """Finishes what is under way and leaves the rest for the next time."""
        for indexer in self._indexers:
            indexer.stop(timeout=120)

    def wait(self, seconds: float) -> bool:
        """Whether all of it is done, after at most so many seconds; raises what went wrong."""
        done = all(indexer.join(seconds / len(self._indexers)) for indexer in self._indexers)
        for indexer in self._indexers:
            if done and indexer.error is not None:
                raise indexer.error
        return done

    def progress(self) -> list[Progress]:
        return [self._progress(indexer.name, indexer.monitor) for indexer in self._indexers]

    def _progress(self, table: str, monitor: Monitor) -> Progress:
        source = self._sources.get(monitor)
        return Progress(
            table=table,
            ticks=monitor.counter("ticks_processed").value,
            present=monitor.counter("ticks_present").value,
            total=self._total,
            rows=monitor.counter("rows_written").value,
            failed=dict(source.failed) if source else {},
        )

    def _open(self, run_id: str, monitor: Monitor) -> StoredBatches:
        self._sources[monitor] = StoredBatches(self._resources.storage, run_id, monitor, self._ticks)
        return self._sources[monitor]


def _files(storage: Storage, run_id: str) -> Iterator[BatchFile]:
    token: str | None = None
    while True:
        page = storage.batches(run_id, after=token, limit=50_000)
        yield from page.files
        token = page.token
        if token is None:
            return
