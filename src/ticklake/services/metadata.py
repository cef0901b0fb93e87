"""Writes the metadata of a run to one file, then announces it."""

from __future__ import annotations

import time
from collections.abc import Callable

from ticklake import faults
from ticklake.contracts import MetadataInfo, SimulationMetadata
from ticklake.defaults import METADATA_TOPIC
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
        self._topic = topic
        self._retry = retry or Retry()
        self._clock = clock
        self._key: str | None = None
        self._published = False

    def run(self) -> None:
        self._key = self._key or self._retry.call("Writing metadata", self._write, self.monitor, "write_retries")
        faults.reach("metadata.publish")
        if not self._published:
            self._retry.call("Publishing metadata", self._publish, self.monitor, "notification_retries")

    def _write(self) -> str:
        key = self._storage.write_metadata(self._metadata)
        self.monitor.counter("metadata_written").add()
        return key

    def _publish(self) -> None:
        now = int(self._clock() * 1000)
        info = MetadataInfo(simulation_run_id=self._run.id, storage_key=self._key, written_at_ms=now)
        with self._run.writer(self._topic) as topic:
            topic.send(info)
        self.monitor.counter("notifications_sent").add()
        self._published = True
