"""Writes the metadata of a run to one file, then announces it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing

from ticklake import faults
from ticklake.contracts import MetadataInfo, SimulationMetadata
from ticklake.defaults import METADATA_TOPIC
from ticklake.services.announcing import Announcer
from ticklake.services.base import Service
from ticklake.services.retry import Retry
from ticklake.storage import Storage
from ticklake.topics import Run


class MetadataPersistenceService(Service):
    """Writes the metadata once, publishes it once, and ends. A restart after a failure continues where it stopped.

    Fails if the run id already has different metadata: it belongs to another producer.
    """

    def __init__(
        self,
        run: Run,
        storage: Storage,
        metadata: SimulationMetadata,
        retry: Retry | None = None,
        *,
        topic: str = METADATA_TOPIC,
        name: str = "metadata-persistence-service",
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(name)
        self._run = run
        self._storage = storage
        self._metadata = metadata
        self._retry = retry or Retry()
        self._clock = clock
        self._key: str | None = None
        self._announcer = Announcer(run, topic, self.monitor, self._retry)

    @property
    def unannounced(self) -> int:
        """1 if the metadata is written but not announced, because the database is away."""
        return len(self._announcer)

    def run(self) -> None:
        if self._key is None:
            self._key = self._retry.call("Writing metadata", self._write, self.monitor, "write_retries")
            self._announcer.add("metadata", self._info(self._key))
        faults.reach("metadata.publish")
        with closing(self._announcer):
            self._announcer.send_all(self.wait)

    def _write(self) -> str:
        key = self._storage.write_metadata(self._metadata)
        self.monitor.counter("metadata_written").add()
        return key

    def _info(self, key: str) -> MetadataInfo:
        now = int(self._clock() * 1000)
        return MetadataInfo(simulation_run_id=self._run.id, storage_key=key, written_at_ms=now)
