"""The composition root: builds resources and services from settings, starts them in order, stops them in reverse."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cached_property
from types import TracebackType
from typing import Self, cast

from ticklake.config import NodeSettings, ServiceSettings
from ticklake.config import options as given
from ticklake.config.hocon import listed, nearest
from ticklake.config.order import start_order
from ticklake.node.begun import Begun
from ticklake.node.errors import UnknownService
from ticklake.node.indexers import check_event_queues, indexed_runs, warm_up
from ticklake.node.instance import Instance
from ticklake.node.leftovers import Leftovers, leftovers_of
from ticklake.node.resources import Resources
from ticklake.node.services import ServiceBuilder
from ticklake.node.supervisor import RestartPolicy, Supervisor
from ticklake.services import Service, State, TickQueue
from ticklake.storage import new_run_id
from ticklake.topics import Database

log = logging.getLogger(__name__)


class Node:
    """The services of one configuration, in this process."""

    def __init__(self, settings: NodeSettings, clock: Callable[[], float] = time.time) -> None:
        settings.check_complete()
        self._settings = settings
        self._clock = clock
        self._resources = Resources(settings)
        self.instance = Instance(settings.node.directory, settings.node.name, settings.node.instances)
        self._begun = self._begun_runs()
        builder = ServiceBuilder(settings, self._resources, self.run_id, clock, self.instance, self._begun)
        check_event_queues(settings)
        built = {service.name: builder.build(service) for service in _build_order(settings)}
        self._simulation, self._run_storage = builder.simulation, builder.run_storage
        self.services: dict[str, Service] = {name: built[name] for name in start_order(settings)}
        self.supervisor = Supervisor(self.services.values(), _restart_policy(settings.node.restart))
        self.started_at: float | None = None
        self.stopping = False
        self.leftovers = Leftovers()
        """What is left to the next start; known after a stop."""

    @property
    def settings(self) -> NodeSettings:
        return self._settings

    @property
    def databases(self) -> list[Database]:
        """The databases that services use."""
        return list(self._resources.databases.values())

    def database(self, name: str) -> Database | None:
        """Returns the database of a resource; None if no service uses it."""
        resource = self._settings.resources[name]
        if resource.class_name != "Database":
            return None
        return self._resources.databases.get(cast(given.DatabaseOptions, resource.options).dsn())

    def runs(self) -> list[str]:
        """Returns the known runs that this node produces or indexes."""
        produced = {self.run_id} if self._simulation is not None else set()
        return sorted(produced | indexed_runs(self.services.values()))

    @property
    def queues(self) -> Mapping[str, TickQueue]:
        return self._resources.queues

    def start(self) -> None:
        """Starts the services, dependencies first. Raises `InstanceRunning` if the node is already running."""
        self.instance.acquire()
        if self._begun is not None and self._simulation is not None and self._run_storage is not None:
            # Before its first file: if this process is killed, the next one knows whose run it was.
            self._begun.begin(self._run_storage)
        self.started_at = self._clock()
        self.supervisor.start_all()

    def _begun_runs(self) -> Begun | None:
        """Returns None if other nodes may share the name: then nobody knows whether an earlier producer is dead."""
        node = self._settings.node
        return Begun(node.directory, node.name, self.run_id) if node.instances == "refuse" else None

    def warm_up(self) -> None:
        """Starts Spark and its workers, which is slow, before the first tick needs them."""
        warm_up(self.services.values())

    def stop(self, timeout: float | None = None) -> bool:
        """Stops the services in reverse order and releases the resources. Returns False if a service took too long."""
        self.stopping = True
        late = self.supervisor.stop_all(self._settings.node.stop_timeout if timeout is None else timeout)
        self.leftovers = leftovers_of(self.services.values(), self.queues.values())
        self.close()
        if not late:  # stopping a session with an active job may block
            self._resources.stop_sessions()
        self.instance.release()
        return not late

    def close(self) -> None:
        """Closes the databases. Enough for a node that was never started."""
        self._resources.close()

    @property
    def ended(self) -> bool:
        """Whether all services have ended and none will restart by itself."""
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
        """The run of this node's simulation."""
        options = [service.options for service in self._settings.services.values()]
        named = [one.run_id for one in options if isinstance(one, given.SimulationOptions) and one.run_id]
        return named[0] if named else new_run_id(datetime.fromtimestamp(self._clock(), UTC))


def _build_order(settings: NodeSettings) -> list[ServiceSettings]:
    """Returns indexers first, because they look for a run that starts after them, and persistence after simulation."""
    ranks = {"Simulation": 1} | dict.fromkeys(("PersistenceService", "CompletionService"), 2)
    ranks |= dict.fromkeys(("MetadataPersistenceService", "ReconciliationService"), 2)
    return sorted(settings.services.values(), key=lambda service: ranks.get(service.class_name, 0))


def _restart_policy(options: given.RestartOptions) -> RestartPolicy:
    return RestartPolicy(
        options.max_restarts, options.first_delay_ms / 1000, options.max_delay_ms / 1000, options.reset_after_ms / 1000
    )
