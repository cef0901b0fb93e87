"""The optional components of an indexer: metadata reading, tick buffering, idempotency."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ticklake import defaults
from ticklake.contracts import SimulationMetadata
from ticklake.indexers.base import IndexerResources
from ticklake.indexers.buffer import TickBuffer
from ticklake.indexers.errors import MetadataTimeout
from ticklake.lake.metadata import TABLE, read_metadata
from ticklake.monitoring import Monitor
from ticklake.storage import Storage
from ticklake.storage.errors import StoredFileMissing
from ticklake.world import World


@dataclass(frozen=True)
class MetadataReading:
    """Waits until the metadata of the run is indexed. It has the sampling interval and the shape of the world."""

    poll_interval_ms: int = defaults.POLL_INTERVAL_MS
    max_poll_duration_ms: int = defaults.MAX_POLL_DURATION_MS

    def load(
        self,
        read: Callable[[], SimulationMetadata | None],
        run_id: str,
        wait: Callable[[float], bool],
        monitor: Monitor,
        since: float | None = None,
    ) -> World | None:
        """Returns the world of the run; None if `wait` returns False first. `since`: when the waiting began."""
        deadline = (time.monotonic() if since is None else since) + self.max_poll_duration_ms / 1000
        while True:
            metadata = _timed(read, monitor)
            if metadata is not None:
                return World.of(metadata)
            if time.monotonic() >= deadline:
                raise MetadataTimeout(run_id=run_id, seconds=self.max_poll_duration_ms / 1000)
            if not wait(self.poll_interval_ms / 1000):
                return None


def metadata_of(resources: IndexerResources, run_id: str) -> Callable[[], SimulationMetadata | None]:
    """Returns a function that reads the metadata file of a run once its table exists; without a lake, at once.

    The file counts, because it can be corrected, and because the coordinator and `verify` read it too.
    """
    storage, lake = resources.storage, resources.lake

    def read() -> SimulationMetadata | None:
        indexed = read_metadata(lake.location(run_id, TABLE), run_id) if lake is not None else None
        return indexed and (stored_metadata(storage, run_id) or indexed)

    return read if lake is not None else partial(stored_metadata, storage, run_id)


def stored_metadata(storage: Storage, run_id: str) -> SimulationMetadata | None:
    """Returns the metadata of a run from its file; None if there is no file."""
    try:
        return storage.read_metadata(run_id)
    except StoredFileMissing:
        return None


def _timed(read: Callable[[], SimulationMetadata | None], monitor: Monitor) -> SimulationMetadata | None:
    started = time.monotonic()
    try:
        metadata = read()
    except Exception:
        monitor.counter("read_errors").add()
        raise
    found = metadata is not None
    monitor.counter("metadata_reads" if found else "metadata_not_found").add()
    seconds = time.monotonic() - started
    monitor.percentiles("get_metadata_latency" if found else "has_metadata_latency").record(seconds)
    return metadata


@dataclass(frozen=True)
class TickBuffering:
    """Flushes across batch files: at `insert_batch_size` ticks, or `flush_timeout_ms` after the last flush."""

    insert_batch_size: int = defaults.INSERT_BATCH_SIZE
    flush_timeout_ms: int = defaults.FLUSH_TIMEOUT_MS

    def buffer(self, step: int) -> TickBuffer:
        return TickBuffer(self.insert_batch_size, self.flush_timeout_ms / 1000, step)


@dataclass(frozen=True)
class Idempotency:
    """Skips batches that were processed before. It only saves work: a table never gets a tick twice."""


@dataclass(frozen=True)
class Components:
    """The components of one indexer. None: not used."""

    metadata: MetadataReading | None = None
    buffering: TickBuffering | None = None
    idempotency: Idempotency | None = None
