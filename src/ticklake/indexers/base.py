"""The base of all indexers: options, resources, and the search for a run."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, ClassVar

from ticklake import defaults
from ticklake.indexers.batches import Pending
from ticklake.indexers.errors import DatabaseNeeded, LakeNeeded, RunDiscoveryTimeout
from ticklake.indexers.runs.following import Following
from ticklake.indexers.runs.pending import Messages, unacknowledged
from ticklake.indexers.runs.unfinished import Unfinished
from ticklake.lake.flush import Sharing
from ticklake.lake.lake import Lake
from ticklake.monitoring import Monitor
from ticklake.services import Service, State
from ticklake.storage import Storage, run_started_at
from ticklake.topics import Database, Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class IndexerOptions:
    """The options of an indexer. Names ending in `_ms` are milliseconds; `claim_timeout` is seconds."""

    run_id: str | None = None
    runs: str | None = None
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
    each batch file together. `consumer` returns `NODE/LIFE`, the start of the names of this node's consumers: claims of
    its other lives are released if they have ended (`is_over`; None: all have). Empty: nothing is known of them.
    `own_run` is the run that this node makes.
    """

    storage: Storage
    lake: Lake | None = None
    database: Database | None = None
    topic: str = ""
    group: str = ""
    spark: Callable[[], SparkSession] | None = None
    sharing: Sharing | None = None
    consumer: Callable[[], str] | None = None
    is_over: Callable[[str], bool] | None = None
    own_run: str = ""

    @property
    def tables(self) -> Lake:
        """The lake. Raises `LakeNeeded` if there is none."""
        if self.lake is None:
            raise LakeNeeded()
        return self.lake


class Indexer(Service):
    """Finds its run, prepares the schema, then indexes the run."""

    default_topic: ClassVar[str] = defaults.BATCH_TOPIC
    gauges_of_runs: Sequence[str] = ()
    """More metrics that are the sums over all runs that this indexer works on."""

    def __init__(self, name: str, resources: IndexerResources, options: IndexerOptions | None = None) -> None:
        super().__init__(name)
        self.resources = resources
        self.options = options or IndexerOptions()
        self.run_id: str | None = None
        self._created_at = datetime.now(UTC)
        self._following: Following | None = None
        self._branch: Database | None = None

    @abstractmethod
    def index_run(self, run_id: str) -> None:
        """Indexes one run until a stop or, with `until_caught_up`, until nothing is left."""

    def prepare_schema(self, run_id: str) -> None:
        """Creates what must exist before indexing starts. Does nothing by default."""

    def run(self) -> None:
        if self.options.runs is not None:
            self._follow(self.options.runs)
            return
        self.run_id = self._discover_run()
        if self.run_id is not None:
            self.check_run(self.run_id)
            self.prepare_schema(self.run_id)
            self.index_run(self.run_id)

    @property
    def runs(self) -> list[str]:
        """The runs that this indexer works on now."""
        if self._following is not None:
            return sorted(self._following.children)
        run_id = self.run_id or self.options.run_id
        return [] if run_id is None else [run_id]

    @property
    def unfinished_runs(self) -> list[str]:
        """The runs that may have work left after the stop, the newest last."""
        return self.runs if self._following is None else self._following.left

    def check_run(self, run_id: str) -> None:
        """Raises if a run that was found is not in the database any more: it was deleted or moved."""
        if self._branch is not None:
            self._branch.run(run_id, create=False)

    @property
    def pending(self) -> Pending:
        """Tells which runs have work for this indexer."""
        if self.resources.database is None:
            raise DatabaseNeeded(name=self.name, topic=self.resources.topic)
        return Messages(self.resources.database, self.has_work)

    def has_work(self, run: Run) -> bool:
        """Returns whether a run has messages that this indexer's group has not acknowledged."""
        return unacknowledged(run, self.resources.topic or self.default_topic, self.resources.group or self.name)

    @property
    def idle_seconds(self) -> float | None:
        """For how long this indexer has found no more work; None while it finds some, or has not looked yet."""
        return None

    def pause(self) -> None:
        super().pause()
        if self._following is not None:
            self._following.pause()

    def resume(self) -> None:
        super().resume()
        if self._following is not None:
            self._following.resume()

    def ask_to_stop(self) -> None:
        super().ask_to_stop()
        if self._following is not None:
            self._following.wake()

    def release(self) -> None:
        """Closes what this indexer of one run does not share with others."""
        if self._branch is not None:
            self._branch.close()

    def _follow(self, wanted: str) -> None:
        """Works on all wanted runs that have work, until a stop or, with `until_caught_up`, until nothing is left."""
        unfinished = Unfinished(self.resources.storage, self.pending, wanted, self.monitor)
        seconds = self.options.poll_interval_ms / 1000
        self._following = Following(
            unfinished,
            self._of_run,
            self.monitor,
            interval=seconds,
            until_caught_up=self.options.until_caught_up,
            gauges=self.gauges_of_runs,
            own_run=self.resources.own_run,
        )
        try:
            while self._proceed_with_children():
                busy = self._following.step(time.monotonic())
                if self.options.until_caught_up and not busy:
                    self._following.check()
                    break
                self._following.rest(seconds)
        finally:
            self._following.stop()

    def _proceed_with_children(self) -> bool:
        """Waits while paused. Then the children are in the same state as this indexer, whoever came first."""
        if self._following is not None and self.state is State.PAUSED:
            self._following.pause()  # also those that started after the pause was requested
        proceeds = self.proceed()
        if self._following is not None and self.state is State.RUNNING:
            self._following.resume()  # also those that were paused during `resume`
        return proceeds

    def _of_run(self, run_id: str) -> Indexer:
        """Returns an indexer of one run. It counts into this one's metrics."""
        database = self.resources.database
        branch = database.branch() if database is not None else None
        sharing = self.resources.sharing.of_run(run_id) if self.resources.sharing is not None else None
        resources = replace(self.resources, database=branch, sharing=sharing)
        child = self._copy(resources, replace(self.options, run_id=run_id, runs=None, until_caught_up=False))
        child._branch = branch
        child.monitor = Monitor(self.name, into=self.monitor)
        child.monitor.errors = self.monitor.errors
        return child

    def _copy(self, resources: IndexerResources, options: IndexerOptions) -> Indexer:
        return type(self)(self.name, resources, options)

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
