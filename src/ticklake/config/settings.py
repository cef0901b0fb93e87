"""A checked configuration: resources, services and their bindings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import NamedTuple, cast

from ticklake.config.bindings import USAGES, Binding
from ticklake.config.classes import ANALYTICS, OWN_INDEXER, SERVICES
from ticklake.config.errors import BindingMissing, GroupFillsTwoTables
from ticklake.config.hocon import listed
from ticklake.config.options import DatabaseOptions, LakeOptions, NodeOptions, Options, StorageOptions, TopicOptions

_ANNOUNCING = ("PersistenceService", "ReconciliationService")
_LISTENING = (
    *("EnvironmentIndexer", "OrganismIndexer", "DummyIndexer", "SimpleBatchIndexer", "MinimalBatchIndexer"),
    *ANALYTICS,
)


@dataclass(frozen=True)
class ResourceSettings:
    """A resource. `origins` holds the file and line of each given option."""

    name: str
    class_name: str
    options: Options
    origins: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ServiceSettings:
    """A service, its bindings by name, and its options."""

    name: str
    class_name: str
    bindings: Mapping[str, Binding]
    options: Options
    origins: Mapping[str, str] = field(default_factory=dict)

    def bound(self, usage: str) -> Binding | None:
        """Returns the first binding with a usage such as `topic-read`."""
        return next((binding for binding in self.bindings.values() if binding.usage == usage), None)


class NamedPlaces(NamedTuple):
    """The places that a configuration names."""

    storages: tuple[str, ...]
    lakes: tuple[str, ...]
    databases: tuple[str, ...]
    batch_topic: str | None = None
    """The topic on which batch files are announced, if there is exactly one. Its database comes first."""
    run_topic: str | None = None
    """The topic on which ends of runs are announced, if there is exactly one."""

    @property
    def storage(self) -> str | None:
        """The first storage. Reports show only one."""
        return next(iter(self.storages), None)

    @property
    def lake(self) -> str | None:
        """The first lake. Reports show only one."""
        return next(iter(self.lakes), None)


@dataclass(frozen=True)
class NodeSettings:
    """A whole configuration. Services are in the order of the file; `start_order` computes the order of starting."""

    file: Path
    resources: Mapping[str, ResourceSettings]
    services: Mapping[str, ServiceSettings]
    node: NodeOptions = field(default_factory=NodeOptions)
    node_origins: Mapping[str, str] = field(default_factory=dict)

    def of_kind(self, service: str, kind: str) -> ResourceSettings:
        """Returns the resource of a kind that a service is bound to; without a binding, the only one of that kind."""
        bindings = self.services[service].bindings.values()
        names = [binding.resource for binding in bindings if binding.kind == kind]
        candidates = [resource.name for resource in self.resources.values() if resource.class_name == kind]
        if not names and len(candidates) != 1:
            raise BindingMissing(file=self.file, service=service, kind=kind, found=listed(candidates))
        return self.resources[(names or candidates)[0]]

    def of_kind_if_any(self, service: str, kind: str) -> ResourceSettings | None:
        """Like `of_kind`, but returns None if the service is bound to none and there is not exactly one."""
        try:
            return self.of_kind(service, kind)
        except BindingMissing:
            return None

    def database_of(self, topic: str) -> DatabaseOptions:
        """Returns the database of a topic: the resource that it names, or its own."""
        options = cast(TopicOptions, self.resources[topic].options)
        if options.database is not None:
            return cast(DatabaseOptions, self.resources[options.database].options)
        return DatabaseOptions.model_construct(**options.model_dump(include=set(DatabaseOptions.model_fields)))

    def places(self) -> NamedPlaces:
        """Returns the storages, the lakes, the databases and the topics for batch files and ends of runs."""
        options = [one.options for one in self.resources.values()]
        storages = [one.path for one in options if isinstance(one, StorageOptions)]
        lakes = [one.path for one in options if isinstance(one, LakeOptions)]
        batch_topic = self.topic_of(*_ANNOUNCING) or self.topic_of(*_LISTENING)
        topics = [name for name, one in self.resources.items() if one.class_name == "Topic"]
        topics.sort(key=lambda name: name != batch_topic)
        own = [cast(DatabaseOptions, one.options) for one in self.resources.values() if one.class_name == "Database"]
        databases = dict.fromkeys(one.dsn() for one in [*map(self.database_of, topics), *own])
        return NamedPlaces(
            storages=tuple(dict.fromkeys(storages)),
            lakes=tuple(dict.fromkeys(lakes)),
            databases=tuple(databases),
            batch_topic=batch_topic,
            run_topic=self.topic_of("CompletionService"),
        )

    def topic_of(self, *classes: str) -> str | None:
        """Returns the topic that services of these classes are bound to; None if there is not exactly one."""
        names = [name for name, service in self.services.items() if service.class_name in classes]
        found = {topic.name for name in names if (topic := self.of_kind_if_any(name, "Topic"))}
        return found.pop() if len(found) == 1 else None

    def check_complete(self) -> None:
        """Raises if a service lacks a required binding, or if two services would split messages that both need."""
        for service in self.services.values():
            for usage in SERVICES.get(service.class_name, OWN_INDEXER).needs:
                self.of_kind(service.name, USAGES[usage])
        for first, second in combinations(self.services.values(), 2):
            reads = first.bound("topic-read")
            if reads is not None and self._split_messages(first, second):
                raise GroupFillsTwoTables(
                    file=self.file,
                    first=first.name,
                    second=second.name,
                    topic=reads.resource,
                    group=reads.consumer_group,
                )

    def _split_messages(self, first: ServiceSettings, second: ServiceSettings) -> bool:
        """Returns whether two services share a consumer group but fill different tables: each would get a part."""
        one, other = first.bound("topic-read"), second.bound("topic-read")
        if one is None or one != other:
            return False
        runs = {getattr(service.options, "run_id", None) for service in (first, second)}
        return (None in runs or len(runs) == 1) and self._fills(first) != self._fills(second)

    def _fills(self, service: ServiceSettings) -> tuple[str, object]:
        lake = self.of_kind_if_any(service.name, "Lake")
        return service.class_name, lake.options if lake else None

    def uses(self, service: str) -> set[tuple[str, str]]:
        """Returns the usages and resources of a service, such as `("queue-in", "tick-queue")`: bound or required."""
        settings = self.services[service]
        bound = {(binding.usage, binding.resource) for binding in settings.bindings.values()}
        kinds = {USAGES[usage] for usage, _ in bound}
        needs = SERVICES.get(settings.class_name, OWN_INDEXER).needs
        return bound | {(one, self.of_kind(service, USAGES[one]).name) for one in needs if USAGES[one] not in kinds}
