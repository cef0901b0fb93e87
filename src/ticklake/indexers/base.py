"""What all indexers share: which run they are for, and the resources they work with. No business logic."""

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
    """What a user can set for an indexer. Times are milliseconds, as in the configuration."""

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
    """Where an indexer reads and writes. The topic is the indexer's usual one, the group its name, unless said here.

    An indexer that writes nothing needs no lake. `spark` is asked for a session only by those that need one. Those with
    the same `sharing` read batch files together.
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
        """The lake, for those who write to it."""
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
        """The work on one run, until stopped or, where asked to, until caught up."""

    def prepare_schema(self, run_id: str) -> None:
        """What must exist before indexing starts; by default nothing."""

    def run(self) -> None:
        self.run_id = self._discover_run()
        if self.run_id is not None:
            self.prepare_schema(self.run_id)
            self.index_run(self.run_id)

    def _discover_run(self) -> str | None:
        """The configured run (post-mortem), or the first one that starts after this indexer was made (parallel)."""
        if self.options.run_id is not None:
            return self.options.run_id
        # Run ids tell whole seconds.
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
