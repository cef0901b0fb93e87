"""Builds indexers from settings."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import partial
from typing import cast

from ticklake.config import Binding, NodeSettings, ServiceSettings
from ticklake.config import options as given
from ticklake.database.names import check_name
from ticklake.events import IndexerQueue
from ticklake.indexers.base import Indexer, IndexerOptions, IndexerResources
from ticklake.indexers.batch import BatchIndexer
from ticklake.indexers.events import EventIndexer
from ticklake.indexers.registry import indexer_of
from ticklake.indexers.shared_runs import Coordinated
from ticklake.lake import flush
from ticklake.lake.lake import Lake
from ticklake.node.errors import (
    EventQueueShared,
    EventRunMissing,
    OneEventFile,
    RunAndRuns,
    SourceMissing,
    TwoEventIndexers,
    TwoSources,
)
from ticklake.node.instance import Instance
from ticklake.node.resources import Resources
from ticklake.services import Service


class IndexerBuilder:
    """Builds the indexers of one configuration. `run_id` is the run that the node itself produces."""

    def __init__(self, settings: NodeSettings, resources: Resources, run_id: str, instance: Instance) -> None:
        self._settings = settings
        self._resources = resources
        self._run_id = run_id
        self._instance = instance
        self._event_tables: dict[tuple[str, str], str] = {}

    def event_indexer(self, service: ServiceSettings) -> Service:
        options = cast(given.EventIndexerOptions, service.options)
        produces = any(one.class_name == "Simulation" for one in self._settings.services.values())
        if options.run_id is None and not produces:
            raise EventRunMissing(file=self._settings.file, service=service.name)
        run_id = options.run_id or self._run_id
        events = cast(given.EventQueueOptions, self._settings.of_kind(service.name, "EventQueue").options)
        lake = self._settings.of_kind(service.name, "Lake")
        tables = cast(given.LakeOptions, lake.options)
        first = self._event_tables.setdefault((run_id, os.path.realpath(str(Lake(tables.path).root))), service.name)
        if first != service.name:
            raise TwoEventIndexers(file=self._settings.file, first=first, second=service.name, run_id=run_id)
        return EventIndexer(
            IndexerQueue(events.path, max_attempts=events.max_attempts),
            Lake(tables.path),
            run_id,
            partial(self._resources.session, lake.name, tables.spark),
            max_batches=options.max_batches,
            until_drained=options.until_caught_up,
            owns_queue=True,
            name=service.name,
        )

    def indexer(self, service: ServiceSettings) -> Service:
        kind = indexer_of(service.class_name, getattr(service.options, "cells", "all"))
        reads, shares = self._source(service, kind)
        self._check_runs(service)
        known = set(IndexerOptions.__dataclass_fields__)
        values = {name: value for name, value in dict(service.options).items() if name in known and value is not None}
        if reads is not None:
            topic = cast(given.TopicOptions, self._settings.resources[reads.resource].options)
            values |= {"claim_timeout": topic.claim_timeout, "max_delivery_attempts": topic.max_delivery_attempts}
        resources, options = self._indexer_resources(service, kind), IndexerOptions(**values)
        if shares is None or not issubclass(kind, BatchIndexer):
            return kind(service.name, resources, options)
        shared = cast(given.DatabaseOptions, self._settings.resources[shares.resource].options)
        database = self._resources.database(shared)
        resources = replace(resources, database=database)
        return kind(service.name, resources, options, Coordinated(database, resources, kind, options))

    def _check_runs(self, service: ServiceSettings) -> None:
        options = cast(given.IndexerOptions, service.options)
        if options.runs is not None and options.run_id is not None:
            raise RunAndRuns(file=self._settings.file, service=service.name, run_id=options.run_id, runs=options.runs)

    def _source(self, service: ServiceSettings, kind: type[Indexer]) -> tuple[Binding | None, Binding | None]:
        """Returns the source of an indexer: a topic or, for a batch indexer, a coordinator. Exactly one is required."""
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
            storage=self._resources.storage(service),
            lake=Lake(options.path) if options else None,
            database=self._resources.topic(service)[0] if reads else None,
            topic=reads.resource if reads else "",
            group=check_name("consumer group", reads.consumer_group or "") if reads else "",
            spark=partial(self._resources.session, name, spark),
            sharing=self._resources.sharing(name, getattr(service.options, "share", None)),
            consumer=self._instance.consumer,
            is_over=self._instance.is_over if self._settings.node.instances == "compete" else None,
            own_run=self._run_id,
        )


def check_event_queues(settings: NodeSettings) -> None:
    """Raises if two services would use the same event queue, which only one process and thread can drain."""
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


def indexed_runs(services: Collection[Service]) -> set[str]:
    """The runs that the indexers among these services work on, as far as they are known."""
    found = {run_id for one in services if isinstance(one, Indexer) for run_id in one.runs}
    return found | {one.run_id for one in services if isinstance(one, EventIndexer)}


def warm_up(services: Iterable[Service]) -> None:
    """Starts Spark and its workers before the first tick needs them."""
    for service in services:
        if isinstance(service, BatchIndexer) and service.resources.spark is not None:
            flush.warm_up(service.resources.spark(), type(service).rows)
