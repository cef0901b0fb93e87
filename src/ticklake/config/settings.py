"""What a configuration says, once it is checked: resources, services, and who uses what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import NamedTuple, cast

from ticklake.config.bindings import USAGES, Binding
from ticklake.config.classes import OWN_INDEXER, SERVICES
from ticklake.config.errors import BindingMissing, GroupFillsTwoTables
from ticklake.config.hocon import listed
from ticklake.config.options import DatabaseOptions, LakeOptions, NodeOptions, Options, StorageOptions, TopicOptions

_ANNOUNCING = ("PersistenceService", "ReconciliationService")
_LISTENING = ("EnvironmentIndexer", "OrganismIndexer", "DummyIndexer", "SimpleBatchIndexer", "MinimalBatchIndexer")


@dataclass(frozen=True)
class ResourceSettings:
    """A resource; `origins` tells for each option that was given where that was."""

    name: str
    class_name: str
    options: Options
    origins: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ServiceSettings:
    """A service, the resources it is bound to (by the names it has for them) and its options."""

    name: str
    class_name: str
    bindings: Mapping[str, Binding]
    options: Options
    origins: Mapping[str, str] = field(default_factory=dict)

    def bound(self, usage: str) -> Binding | None:
        """Its first binding of a usage such as `topic-read`."""
        return next((binding for binding in self.bindings.values() if binding.usage == usage), None)


class NamedPlaces(NamedTuple):
    """What a configuration names, and so what reports look at. `others` are storages and lakes that they leave out."""

    storage: str | None
    lake: str | None
    databases: tuple[str, ...]
    others: list[str]
    batch_topic: str | None = None
    """The topic that batches are announced on, if there is just one. Its database is the first."""
    run_topic: str | None = None
    """The topic that the ends of runs are announced on, if there is just one."""


@dataclass(frozen=True)
class NodeSettings:
    """A whole configuration. Services are in the order of the file; `start_order` is the one they start in."""

    file: Path
    resources: Mapping[str, ResourceSettings]
    services: Mapping[str, ServiceSettings]
    node: NodeOptions = field(default_factory=NodeOptions)
    node_origins: Mapping[str, str] = field(default_factory=dict)

    def of_kind(self, service: str, kind: str) -> ResourceSettings:
        """The resource of a kind that a service is bound to; without a binding, the only one there is."""
        bindings = self.services[service].bindings.values()
        names = [binding.resource for binding in bindings if binding.kind == kind]
        candidates = [resource.name for resource in self.resources.values() if resource.class_name == kind]
        if not names and len(candidates) != 1:
            raise BindingMissing(file=self.file, service=service, kind=kind, found=listed(candidates))
        return self.resources[(names or candidates)[0]]

    def of_kind_if_any(self, service: str, kind: str) -> ResourceSettings | None:
        """The same, for a service that can do without; None if it is bound to none and there is not just one."""
        try:
            return self.of_kind(service, kind)
        except BindingMissing:
            return None

    def database_of(self, topic: str) -> DatabaseOptions:
        """The database that a topic is in, whether it names one or brings its own."""
        options = cast(TopicOptions, self.resources[topic].options)
        if options.database is not None:
            return cast(DatabaseOptions, self.resources[options.database].options)
        return DatabaseOptions.model_construct(**options.model_dump(include=set(DatabaseOptions.model_fields)))

    def places(self) -> NamedPlaces:
        """Every database, of topics or coordinators; of storages and lakes the first."""
        options = [one.options for one in self.resources.values()]
        storages = [one.path for one in options if isinstance(one, StorageOptions)]
        lakes = [one.path for one in options if isinstance(one, LakeOptions)]
        batch_topic = self.topic_of(*_ANNOUNCING) or self.topic_of(*_LISTENING)
        topics = [name for name, one in self.resources.items() if one.class_name == "Topic"]
        topics.sort(key=lambda name: name != batch_topic)
        own = [cast(DatabaseOptions, one.options) for one in self.resources.values() if one.class_name == "Database"]
        databases = dict.fromkeys(one.dsn() for one in [*map(self.database_of, topics), *own])
        return NamedPlaces(
            storage=next(iter(storages), None),
            lake=next(iter(lakes), None),
            databases=tuple(databases),
            others=storages[1:] + lakes[1:],
            batch_topic=batch_topic,
            run_topic=self.topic_of("CompletionService"),
        )

    def topic_of(self, *classes: str) -> str | None:
        """The one topic that the services of some classes are bound to; None if there are several or none."""
        names = [name for name, service in self.services.items() if service.class_name in classes]
        found = {topic.name for name in names if (topic := self.of_kind_if_any(name, "Topic"))}
        return found.pop() if len(found) == 1 else None

    def check_complete(self) -> None:
        """Raises if a service lacks something that it cannot run without, or would take messages from another one."""
        for service in self.services.values():
            for usage in SERVICES.get(service.class_name, OWN_INDEXER).needs:
                self.of_kind(service.name, USAGES[usage])
        for first, second in combinations(self.services.values(), 2):
            reads = first.bound("topic-read")
            if reads is not None and self._take_from_each_other(first, second):
                raise GroupFillsTwoTables(
                    file=self.file,
                    first=first.name,
                    second=second.name,
                    topic=reads.resource,
                    group=reads.consumer_group,
                )

    def _take_from_each_other(self, first: ServiceSettings, second: ServiceSettings) -> bool:
        """Whether two services read as one consumer group and fill different tables: each would get a part."""
        one, other = first.bound("topic-read"), second.bound("topic-read")
        if one is None or one != other:
            return False
        runs = {getattr(service.options, "run_id", None) for service in (first, second)}
        return (None in runs or len(runs) == 1) and self._fills(first) != self._fills(second)

    def _fills(self, service: ServiceSettings) -> tuple[str, object]:
        lake = self.of_kind_if_any(service.name, "Lake")
        return service.class_name, lake.options if lake else None

    def uses(self, service: str) -> set[tuple[str, str]]:
        """What a service does with which resource, `("queue-in", "tick-queue")`: as bound, or as it must be."""
        settings = self.services[service]
        bound = {(binding.usage, binding.resource) for binding in settings.bindings.values()}
        kinds = {USAGES[usage] for usage, _ in bound}
        needs = SERVICES.get(settings.class_name, OWN_INDEXER).needs
        return bound | {(one, self.of_kind(service, USAGES[one]).name) for one in needs if USAGES[one] not in kinds}
