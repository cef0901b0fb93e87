"""Builds services from settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from ticklake.config import NodeSettings, ServiceSettings
from ticklake.config import options as given
from ticklake.defaults import BATCH_TOPIC
from ticklake.lake.upkeep import Policy
from ticklake.node.begun import Begun
from ticklake.node.errors import ProducerMissing, TwoProducers
from ticklake.node.indexers import IndexerBuilder
from ticklake.node.instance import Instance
from ticklake.node.resources import Resources
from ticklake.services import (
    CompactionService,
    CompletionService,
    EarlierRuns,
    MetadataPersistenceService,
    PersistenceOptions,
    PersistenceService,
    ReconciliationService,
    Retry,
    Service,
    SimulationService,
)
from ticklake.simulation import SimulationSettings
from ticklake.storage import check_run_id


class ServiceBuilder:
    """Builds the services of one configuration. `run_id` is the run that the node produces."""

    def __init__(
        self,
        settings: NodeSettings,
        resources: Resources,
        run_id: str,
        clock: Callable[[], float],
        instance: Instance,
        begun: Begun | None = None,
    ) -> None:
        self._settings = settings
        self._resources = resources
        self._run_id = run_id
        self._clock = clock
        self._begun = begun
        self._indexers = IndexerBuilder(settings, resources, run_id, instance)
        self.simulation: SimulationService | None = None
        self.run_storage: str | None = None
        """The storage of the run that the node produces, if a service records its end."""

    def build(self, service: ServiceSettings) -> Service:
        builders: dict[str, Callable[[ServiceSettings], Service]] = {
            "Simulation": self._simulation,
            "PersistenceService": self._persistence,
            "MetadataPersistenceService": self._metadata_persistence,
            "CompletionService": self._completion,
            "ReconciliationService": self._reconciliation,
            "CompactionService": self._compaction,
            "EventIndexer": self._indexers.event_indexer,
        }
        run_id = getattr(service.options, "run_id", None)
        if run_id is not None:
            check_run_id(run_id)
        return builders.get(service.class_name, self._indexers.indexer)(service)

    def _simulation(self, service: ServiceSettings) -> Service:
        if self.simulation is not None:
            raise TwoProducers(file=self._settings.file, first=self.simulation.name, second=service.name)
        options = cast(given.SimulationOptions, service.options)
        settings = SimulationSettings(
            shape=(options.shape[0], options.shape[1]),
            seed=options.seed,
            organisms=options.organisms,
            season_ticks=options.season_ticks,
            sampling_interval=options.sampling_interval,
        )
        self.simulation = SimulationService(
            self._run_id,
            settings,
            self._resources.queue(service),
            options.max_ticks,
            name=service.name,
            clock=self._clock,
        )
        return self.simulation

    def _persistence(self, service: ServiceSettings) -> Service:
        options = cast(given.PersistenceOptions, service.options)
        limits = PersistenceOptions(
            options.max_batch_size, options.batch_timeout_seconds, options.max_batch_bytes, _retry(options.retry)
        )
        database, topic = self._resources.topic(service)
        return PersistenceService(
            database.run(self._run_id),
            self._resources.storage(service),
            self._resources.queue(service),
            limits,
            topic=topic,
            name=service.name,
        )

    def _metadata_persistence(self, service: ServiceSettings) -> Service:
        if self.simulation is None:
            raise ProducerMissing(file=self._settings.file, service=service.name)
        options = cast(given.MetadataPersistenceOptions, service.options)
        database, topic = self._resources.topic(service)
        return MetadataPersistenceService(
            database.run(self._run_id),
            self._resources.storage(service),
            self.simulation.metadata,
            _retry(options.retry),
            topic=topic,
            name=service.name,
        )

    def _completion(self, service: ServiceSettings) -> Service:
        options = cast(given.CompletionOptions, service.options)
        database, topic = self._resources.topic(service)
        storage = self._resources.storage(service)
        self.run_storage = storage.url
        earlier = EarlierRuns(self._begun, database, self._batch_topic(), topic) if self._begun is not None else None
        return CompletionService(
            database.run(self._run_id),
            storage,
            self._resources.queue(service),
            _retry(options.retry),
            topic=topic,
            earlier=earlier,
            name=service.name,
        )

    def _batch_topic(self) -> str:
        """The topic on which this node announces batch files."""
        for service in self._settings.services.values():
            if service.class_name == "PersistenceService":
                return self._resources.topic(service)[1]
        return BATCH_TOPIC

    def _reconciliation(self, service: ServiceSettings) -> Service:
        options = cast(given.ReconciliationOptions, service.options)
        database, topic = self._resources.topic(service)
        interval = options.interval_ms / 1000
        return ReconciliationService(
            database,
            self._resources.storage(service),
            interval,
            run_id=options.run_id,
            topic=topic,
            abandon_after=options.abandon_after_seconds,
            own=self._run_id,
            name=service.name,
        )

    def _compaction(self, service: ServiceSettings) -> Service:
        options = cast(given.CompactionOptions, service.options)
        lake = cast(given.LakeOptions, self._settings.of_kind(service.name, "Lake").options)
        policy = Policy(full_bytes=options.full_bytes, fan_in=options.fan_in)
        interval = options.interval_ms / 1000
        return CompactionService(lake.path, interval, run_id=options.run_id, policy=policy, name=service.name)


def _retry(options: given.RetryOptions) -> Retry:
    return Retry(options.max_attempts, options.first_delay_ms / 1000, options.max_delay_ms / 1000)
