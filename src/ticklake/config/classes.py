"""The classes that a configuration can name: by their own names, or by the last part of the original's Java names."""

from __future__ import annotations

from typing import NamedTuple

from ticklake.config import options
from ticklake.config.errors import ClassMissing, UnknownClass
from ticklake.config.hocon import fold, listed, nearest


class ServiceClass(NamedTuple):
    """The options of a service class and the usages of resources that it requires."""

    options: type[options.Options]
    needs: tuple[str, ...]


RESOURCES: dict[str, type[options.Options]] = {
    "Topic": options.TopicOptions,
    "Database": options.DatabaseOptions,
    "Storage": options.StorageOptions,
    "Queue": options.QueueOptions,
    "Lake": options.LakeOptions,
    "EventQueue": options.EventQueueOptions,
}

ANALYTICS = (
    *("TickStatsIndexer", "BirthsIndexer", "DeathsIndexer", "GenomeCountsIndexer", "ProgramCountsIndexer"),
    *("CellStatsIndexer", "InstructionCountsIndexer", "MutationEventsIndexer"),
)
_STORED = ("storage-write", "topic-write")
_INDEXED = ("storage-read", "lake-write")
SERVICES: dict[str, ServiceClass] = {
    "Simulation": ServiceClass(options.SimulationOptions, ("queue-out",)),
    "PersistenceService": ServiceClass(options.PersistenceOptions, ("queue-in", *_STORED)),
    "MetadataPersistenceService": ServiceClass(options.MetadataPersistenceOptions, _STORED),
    "CompletionService": ServiceClass(options.CompletionOptions, ("queue-in", *_STORED)),
    "ReconciliationService": ServiceClass(options.ReconciliationOptions, ("storage-read", "topic-write")),
    "CompactionService": ServiceClass(options.CompactionOptions, ("lake-write",)),
    "MetadataIndexer": ServiceClass(options.MetadataIndexerOptions, (*_INDEXED, "topic-read")),
    "EnvironmentIndexer": ServiceClass(options.EnvironmentIndexerOptions, _INDEXED),
    "OrganismIndexer": ServiceClass(options.BatchIndexerOptions, _INDEXED),
    **dict.fromkeys(ANALYTICS, ServiceClass(options.BatchIndexerOptions, _INDEXED)),
    "DummyIndexer": ServiceClass(options.BatchIndexerOptions, ("storage-read",)),
    "SimpleBatchIndexer": ServiceClass(options.UnbufferedIndexerOptions, _INDEXED),
    "EventIndexer": ServiceClass(options.EventIndexerOptions, ("events-read", "lake-write")),
    "MinimalBatchIndexer": ServiceClass(options.UnbufferedIndexerOptions, ("storage-read",)),
}
OWN_INDEXER = ServiceClass(options.BatchIndexerOptions, ("storage-read",))
"""A user's own indexer, `class = "module:Class"`. Only its class knows whether it needs a lake."""

_ORIGINALS = {
    "H2TopicResource": "Topic",
    "H2Database": "Database",
    "PostgresDatabase": "Database",
    "FileSystemStorageResource": "Storage",
    "InMemoryBlockingQueue": "Queue",
    "SimulationEngine": "Simulation",
    "SimpleIndexer": "SimpleBatchIndexer",
    "MinimalIndexer": "MinimalBatchIndexer",
}


def resource_class(given: str | None, where: str, key: str) -> str:
    if given is None:
        raise ClassMissing(where=where, key=key, allowed=listed(RESOURCES))
    return _known(given, list(RESOURCES), where)


def service_class(given: str | None, name: str, where: str, key: str) -> str:
    """Returns the given class, or the one that the service is named after: `dummy-indexer-2` is a DummyIndexer."""
    if given is not None and ":" in given:
        return given
    if given is not None:
        return _known(given, list(SERVICES), where)
    found = _by_name(SERVICES).get(fold(name.rstrip("0123456789").rstrip("-_")))
    if found is None:
        raise ClassMissing(where=where, key=key, allowed=listed(SERVICES))
    return found


def _known(given: str, allowed: list[str], where: str) -> str:
    found = _by_name(allowed).get(fold(given.rpartition(".")[2]))
    if found is None:
        hint = nearest(given.rpartition(".")[2], allowed)
        raise UnknownClass(where=where, given=given, hint=hint, allowed=listed(allowed))
    return found


def _by_name(allowed: list[str] | dict[str, ServiceClass]) -> dict[str, str]:
    originals = {fold(original): ours for original, ours in _ORIGINALS.items() if ours in allowed}
    return originals | {fold(name): name for name in allowed}
