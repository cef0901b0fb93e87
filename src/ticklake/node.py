"""The composition root: from settings to resources and services, started in order and stopped in reverse."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cached_property, partial
from types import TracebackType
from typing import TYPE_CHECKING, Self, cast

from ticklake.config import Binding, NodeSettings, ServiceSettings
from ticklake.config import options as given
from ticklake.config.order import start_order
from ticklake.config.suggest import listed, nearest
from ticklake.database.names import check_name
from ticklake.errors import (
    EventQueueShared,
    EventRunMissing,
    OneEventFile,
    ProducerMissing,
    SourceMissing,
    TwoEventIndexers,
    TwoProducers,
    TwoSources,
    UnknownService,
)
from ticklake.events import IndexerQueue
from ticklake.indexers.base import Indexer, IndexerOptions, IndexerResources
from ticklake.indexers.batch import BatchIndexer
from ticklake.indexers.coordinated import coordinated
from ticklake.indexers.events import EventIndexer
from ticklake.indexers.registry import indexer_of
from ticklake.instance import Instance
from ticklake.lake.flush import Sharing, warm_up
from ticklake.lake.lake import Lake
from ticklake.lake.session import open_session, stop_session
from ticklake.lake.upkeep import Policy
from ticklake.services.base import Service, State
from ticklake.services.compaction import CompactionService
from ticklake.services.completion import CompletionService
from ticklake.services.metadata import MetadataPersistenceService
from ticklake.services.persistence import PersistenceOptions, PersistenceService
from ticklake.services.queue import TickQueue
from ticklake.services.reconciliation import ReconciliationService
from ticklake.services.retry import Retry
from ticklake.services.simulation import SimulationService
from ticklake.services.supervisor import RestartPolicy, Supervisor
from ticklake.simulation import SimulationSettings
from ticklake.storage.files import Storage
from ticklake.storage.names import check_run_id, new_run_id
from ticklake.topics import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


class Node:
    """One configuration at work in this process."""

    def __init__(self, settings: NodeSettings, clock: Callable[[], float] = time.time) -> None:
        settings.check_complete()
        self._settings = settings
        self._clock = clock
        self._databases: dict[str, Database] = {}
        self._queues: dict[str, TickQueue] = {}
        self._spark_lock = threading.Lock()
        self._sessions: dict[str, SparkSession] = {}
        self._sharings: dict[tuple[str, str], Sharing] = {}
        self._event_tables: dict[tuple[str, str], str] = {}
        self._simulation: SimulationService | None = None
        _check_event_queues(settings)
        built = {service.name: self._build(service) for service in _build_order(settings)}
        self.services: dict[str, Service] = {name: built[name] for name in start_order(settings)}
        self.supervisor = Supervisor(self.services.values(), _restart_policy(settings.node.restart))
        self.instance = Instance(settings.node.directory, settings.node.name, settings.node.instances)
        self.started_at: float | None = None
        self.stopping = False

    @property
    def settings(self) -> NodeSettings:
        return self._settings

    @property
    def databases(self) -> list[Database]:
        """Those that a service uses."""
        return list(self._databases.values())

    def database(self, name: str) -> Database | None:
        """The database of this resource, where a service uses it."""
        resource = self._settings.resources[name]
        if resource.class_name != "Database":
            return None
        return self._databases.get(cast(given.DatabaseOptions, resource.options).dsn())

    def runs(self) -> list[str]:
        """The runs that this node produces or indexes, as far as they are known by now."""
        produced = {self.run_id} if self._simulation is not None else set()
        indexers = [service for service in self.services.values() if isinstance(service, Indexer)]
        indexed = {one.run_id or one.options.run_id for one in indexers}
        indexed |= {one.run_id for one in self.services.values() if isinstance(one, EventIndexer)}
        return sorted(produced | {run for run in indexed if run is not None})

    @property
    def queues(self) -> Mapping[str, TickQueue]:
        return self._queues

    def start(self) -> None:
        """Starts the services, those that others depend on first. Raises `InstanceRunning` where another one runs."""
        self.instance.acquire()
        self.started_at = self._clock()
        self.supervisor.start_all()

    def warm_up(self) -> None:
        """Starts what takes its time, Spark and its workers, before the first tick needs it."""
        for service in self.services.values():
            if isinstance(service, BatchIndexer) and service.resources.spark is not None:
                warm_up(service.resources.spark(), type(service).rows)

    def stop(self, timeout: float | None = None) -> bool:
        """Stops the services, last started first, and gives the resources back. False where one took too long."""
        self.stopping = True
        late = self.supervisor.stop_all(self._settings.node.stop_timeout if timeout is None else timeout)
        self.close()
        if not late:  # a session with a job under way may take its time
            for session in self._sessions.values():
                stop_session(session)
        self.instance.release()
        return not late

    def close(self) -> None:
        """Closes the databases; all there is to do for a node that was never started."""
        for database in self._databases.values():
            database.close()

    @property
    def ended(self) -> bool:
        """Whether no service is at work any more, nor will be by itself."""
        return self.supervisor.ended

    def service(self, name: str) -> Service:
        if name not in self.services:
            raise UnknownService(name=name, hint=nearest(name, self.services), found=listed(self.services))
        return self.services[name]

    @property
    def failed(self) -> list[Service]:
        return [service for service in self.services.values() if service.state is State.ERROR]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @cached_property
    def run_id(self) -> str:
        """The run that this node's simulation produces."""
        options = [service.options for service in self._settings.services.values()]
        named = [one.run_id for one in options if isinstance(one, given.SimulationOptions) and one.run_id]
        return named[0] if named else new_run_id(datetime.fromtimestamp(self._clock(), UTC))

    def _build(self, service: ServiceSettings) -> Service:
        builders: dict[str, Callable[[ServiceSettings], Service]] = {
            "Simulation": self._build_simulation,
            "PersistenceService": self._build_persistence,
            "MetadataPersistenceService": self._build_metadata_persistence,
            "CompletionService": self._build_completion,
            "ReconciliationService": self._build_reconciliation,
            "CompactionService": self._build_compaction,
            "EventIndexer": self._build_event_indexer,
        }
        run_id = getattr(service.options, "run_id", None)
        if run_id is not None:
            check_run_id(run_id)
        return builders.get(service.class_name, self._build_indexer)(service)

    def _build_simulation(self, service: ServiceSettings) -> Service:
        if self._simulation is not None:
            raise TwoProducers(file=self._settings.file, first=self._simulation.name, second=service.name)
        options = cast(given.SimulationOptions, service.options)
        settings = SimulationSettings(
            shape=(options.shape[0], options.shape[1]),
            seed=options.seed,
            organisms=options.organisms,
            season_ticks=options.season_ticks,
            sampling_interval=options.sampling_interval,
        )
        self._simulation = SimulationService(
            self.run_id, settings, self._queue(service), options.max_ticks, name=service.name, clock=self._clock
        )
        return self._simulation

    def _build_persistence(self, service: ServiceSettings) -> Service:
        options = cast(given.PersistenceOptions, service.options)
        limits = PersistenceOptions(
            options.max_batch_size, options.batch_timeout_seconds, options.max_batch_bytes, _retry(options.retry)
        )
        database, topic = self._topic(service)
        return PersistenceService(
            database.run(self.run_id),
            self._storage(service),
            self._queue(service),
            limits,
            topic=topic,
            name=service.name,
        )

    def _build_metadata_persistence(self, service: ServiceSettings) -> Service:
        if self._simulation is None:
            raise ProducerMissing(file=self._settings.file, service=service.name)
        options = cast(given.MetadataPersistenceOptions, service.options)
        database, topic = self._topic(service)
        return MetadataPersistenceService(
            database.run(self.run_id),
            self._storage(service),
            self._simulation.metadata,
            _retry(options.retry),
            topic=topic,
            name=service.name,
        )

    def _build_completion(self, service: ServiceSettings) -> Service:
        options = cast(given.CompletionOptions, service.options)
        database, topic = self._topic(service)
        return CompletionService(
            database.run(self.run_id),
            self._storage(service),
            self._queue(service),
            _retry(options.retry),
            topic=topic,
            name=service.name,
        )

    def _build_reconciliation(self, service: ServiceSettings) -> Service:
        options = cast(given.ReconciliationOptions, service.options)
        database, topic = self._topic(service)
        interval = options.interval_ms / 1000
        return ReconciliationService(
            database, self._storage(service), interval, run_id=options.run_id, topic=topic, name=service.name
        )

    def _build_compaction(self, service: ServiceSettings) -> Service:
        options = cast(given.CompactionOptions, service.options)
        lake = cast(given.LakeOptions, self._settings.of_kind(service.name, "Lake").options)
        policy = Policy(full_bytes=options.full_bytes, fan_in=options.fan_in)
        interval = options.interval_ms / 1000
        return CompactionService(lake.path, interval, run_id=options.run_id, policy=policy, name=service.name)

    def _build_event_indexer(self, service: ServiceSettings) -> Service:
        options = cast(given.EventIndexerOptions, service.options)
        produces = any(one.class_name == "Simulation" for one in self._settings.services.values())
        if options.run_id is None and not produces:
            raise EventRunMissing(file=self._settings.file, service=service.name)
        run_id = options.run_id or self.run_id
        events = cast(given.EventQueueOptions, self._settings.of_kind(service.name, "EventQueue").options)
        lake = self._settings.of_kind(service.name, "Lake")
        tables = cast(given.LakeOptions, lake.options)
        first = self._event_tables.setdefault((run_id, os.path.realpath(Lake(tables.path).root)), service.name)
        if first != service.name:
            raise TwoEventIndexers(file=self._settings.file, first=first, second=service.name, run_id=run_id)
        return EventIndexer(
            IndexerQueue(events.path, max_attempts=events.max_attempts),
            Lake(tables.path),
            run_id,
            partial(self._spark, lake.name, tables.spark),
            max_batches=options.max_batches,
            until_drained=options.until_caught_up,
            owns_queue=True,
            name=service.name,
        )

    def _build_indexer(self, service: ServiceSettings) -> Service:
        kind = indexer_of(service.class_name)
        reads, shares = self._source(service, kind)
        known = set(IndexerOptions.__dataclass_fields__)
        values = {name: value for name, value in dict(service.options).items() if name in known and value is not None}
        if reads is not None:
            topic = cast(given.TopicOptions, self._settings.resources[reads.resource].options)
            values |= {"claim_timeout": topic.claim_timeout, "max_delivery_attempts": topic.max_delivery_attempts}
        resources, options = self._indexer_resources(service, kind), IndexerOptions(**values)
        if shares is None or not issubclass(kind, BatchIndexer):
            return kind(service.name, resources, options)
        database = self._database(cast(given.DatabaseOptions, self._settings.resources[shares.resource].options))
        return kind(service.name, resources, options, coordinated(database, resources, kind, options))

    def _source(self, service: ServiceSettings, kind: type[Indexer]) -> tuple[Binding | None, Binding | None]:
        """What an indexer reads from: a topic, or for a batch indexer a coordinator. One of them, not both."""
        reads = service.bound("topic-read")
        shares = service.bound("db-coordinator") if issubclass(kind, BatchIndexer) else None
        if reads is None and shares is None:
            raise SourceMissing(file=self._settings.file, service=service.name)
        if reads is not None and shares is not None:
            raise TwoSources(file=self._settings.file, service=service.name, topic=str(reads), coordinator=str(shares))
        return reads, shares

    def _indexer_resources(self, service: ServiceSettings, kind: type[Indexer]) -> IndexerResources:
        writes = not issubclass(kind, BatchIndexer) or kind.table is not None
        find = self._settings.of_kind if writes else self._settings.of_kind_if_any
        lake = find(service.name, "Lake")
        options = cast(given.LakeOptions, lake.options) if lake else None
        name, spark = (lake.name if lake else ""), (options.spark if options else given.SparkOptions())
        reads = service.bound("topic-read")
        return IndexerResources(
            storage=self._storage(service),
            lake=Lake(options.path) if options else None,
            database=self._topic(service)[0] if reads else None,
            topic=reads.resource if reads else "",
            group=check_name("consumer group", reads.consumer_group or "") if reads else "",
            spark=partial(self._spark, name, spark),
            sharing=self._sharing(name, getattr(service.options, "share", None)),
        )

    def _sharing(self, lake: str, share: str | None) -> Sharing | None:
        """Those who share run on the same Spark, so a name counts within its lake."""
        return self._sharings.setdefault((lake, share), Sharing()) if share else None

    def _spark(self, lake: str, options: given.SparkOptions) -> SparkSession:
        with self._spark_lock:
            self._sessions[lake] = open_session(options.master, options.settings)
            return self._sessions[lake]

    def _storage(self, service: ServiceSettings) -> Storage:
        options = cast(given.StorageOptions, self._settings.of_kind(service.name, "Storage").options)
        return Storage(options.path, options.compress)

    def _queue(self, service: ServiceSettings) -> TickQueue:
        queue = self._settings.of_kind(service.name, "Queue")
        if queue.name not in self._queues:
            options = cast(given.QueueOptions, queue.options)
            self._queues[queue.name] = TickQueue(options.max_ticks, options.max_bytes)
        return self._queues[queue.name]

    def _topic(self, service: ServiceSettings) -> tuple[Database, str]:
        """The topic a service is bound to, by name, and the database that it is in."""
        topic = self._settings.of_kind(service.name, "Topic")
        return self._database(self._settings.database_of(topic.name)), check_name("topic", topic.name)

    def _database(self, options: given.DatabaseOptions) -> Database:
        url = options.dsn()
        if url not in self._databases:
            self._databases[url] = Database(
                url,
                max_pool_size=options.max_pool_size,
                min_idle=options.min_idle,
                metrics_window_seconds=options.metrics_window_seconds,
            )
        return self._databases[url]


def _check_event_queues(settings: NodeSettings) -> None:
    """The file of an event queue is open once, for one who drains it."""
    files: dict[str, str] = {}
    for name, resource in settings.resources.items():
        if isinstance(resource.options, given.EventQueueOptions):
            path = os.path.realpath(IndexerQueue(resource.options.path).path)
            if (first := files.setdefault(path, name)) != name:
                raise OneEventFile(file=settings.file, first=first, second=name, path=path)
    drained: dict[str, str] = {}
    for service in settings.services.values():
        if service.class_name == "EventIndexer":
            queue = settings.of_kind(service.name, "EventQueue").name
            if (first := drained.setdefault(queue, service.name)) != service.name:
                raise EventQueueShared(file=settings.file, first=first, second=service.name, queue=queue)


def _build_order(settings: NodeSettings) -> list[ServiceSettings]:
    """Indexers first: they look for a run that starts after they were made. Who persists a simulation, after it."""
    ranks = {"Simulation": 1} | dict.fromkeys(("PersistenceService", "CompletionService"), 2)
    ranks |= dict.fromkeys(("MetadataPersistenceService", "ReconciliationService"), 2)
    return sorted(settings.services.values(), key=lambda service: ranks.get(service.class_name, 0))


def _restart_policy(options: given.RestartOptions) -> RestartPolicy:
    return RestartPolicy(
        options.max_restarts, options.first_delay_ms / 1000, options.max_delay_ms / 1000, options.reset_after_ms / 1000
    )


def _retry(options: given.RetryOptions) -> Retry:
    return Retry(options.max_attempts, options.first_delay_ms / 1000, options.max_delay_ms / 1000)
