"""The base of all indexers: options, resources, and the search for a run."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ticklake import defaults
from ticklake.indexers.errors import LakeNeeded, RunDiscoveryTimeout
from ticklake.lake.flush import Sharing
from ticklake.lake.lake import Lake
from ticklake.services import Service
from ticklake.storage import Storage, run_started_at
from ticklake.topics import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class IndexerOptions:
    """The options of an indexer. Names ending in `_ms` are milliseconds; `claim_timeout` is seconds."""

    run_id: str | None = None
    poll_interval_ms: int = defaults.POLL_INTERVAL_MS
    max_poll_duration_ms: int = defaults.MAX_POLL_DURATION_MS
    insert_batch_size: int = defaults.INSERT_BATCH_SIZE
    flush_timeout_ms: int = defaults.FLUSH_TIMEOUT_MS
    topic_poll_timeout_ms: int = defaults.TOPIC_POLL_TIMEOUT_MS
    enable_idempotency: bool = False
    claim_timeout: float = defaults.CLAIM_TIMEOUT_SECONDS
    max_delivery_attempts: int = defaults.MAX_DELIVERY_ATTEMPTS
    until_caught_up: bool = False
    gap_warning_timeout_ms: int = defaults.GAP_WARNING_TIMEOUT_MS


@dataclass(frozen=True)
class IndexerResources:
    """Where an indexer reads and writes. The default topic depends on the indexer; the default group is its name.

    An indexer that writes no table needs no lake. `spark` returns the session. Indexers with the same `sharing` read
    each batch file together.
    """

    storage: Storage
    lake: Lake | None = None
    database: Database | None = None
    topic: str = ""
    group: str = ""
    spark: Callable[[], SparkSession] | None = None
    sharing: Sharing | None = None

    @property
    def tables(self) -> Lake:
        """The lake. Raises `LakeNeeded` if there is none."""
        if self.lake is None:
            raise LakeNeeded()
        return self.lake


class Indexer(Service):
    """Finds its run, prepares the schema, then indexes the run."""

    def __init__(self, name: str, resources: IndexerResources, options: IndexerOptions | None = None) -> None:
        super().__init__(name)
        self.resources = resources
        self.options = options or IndexerOptions()
        self.run_id: str | None = None
        self._created_at = datetime.now(UTC)

    @abstractmethod
    def index_run(self, run_id: str) -> None:
        """Indexes one run until a stop or, with `until_caught_up`, until nothing is left."""

    def prepare_schema(self, run_id: str) -> None:
        """Creates what must exist before indexing starts. Does nothing by default."""

    def run(self) -> None:
        self.run_id = self._discover_run()
        if self.run_id is not None:
            self.prepare_schema(self.run_id)
            self.index_run(self.run_id)

    def _discover_run(self) -> str | None:
        """Returns the configured run, or waits for the first run that starts after this indexer was created."""
        if self.options.run_id is not None:
            return self.options.run_id
        # Run ids have whole seconds.
        since = self._created_at.replace(microsecond=0)
        deadline = time.monotonic() + self.options.max_poll_duration_ms / 1000
        while time.monotonic() < deadline:
            for run_id in self.resources.storage.runs():
                started = run_started_at(run_id)
                if started is not None and started >= since:
                    return run_id
            if not self.wait(self.options.poll_interval_ms / 1000):
                return None
        raise RunDiscoveryTimeout(
            storage=self.resources.storage.url, since=since, seconds=self.options.max_poll_duration_ms / 1000
        )
