"""Ticks in, tables out, exactly once."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ticklake.consumer import ConsumerFunction, IdempotentConsumer, Outbox, ProcessedMessages, Relay
    from ticklake.contracts import (
        BatchInfo,
        EnvironmentConfig,
        MetadataInfo,
        RunCompleted,
        SimulationMetadata,
        TickData,
    )
    from ticklake.database import Transaction
    from ticklake.events import DeadBatch, Event, EventBus, IndexerQueue
    from ticklake.indexers.batch import BatchIndexer
    from ticklake.indexers.events import EventIndexer
    from ticklake.lake.lake import Lake
    from ticklake.lake.read import cells_at, read
    from ticklake.lake.read.reading import Rows
    from ticklake.lake.table import Table
    from ticklake.services import (
        CompletionService,
        MetadataPersistenceService,
        PersistenceOptions,
        PersistenceService,
        Producer,
        Service,
        TickQueue,
    )
    from ticklake.storage import (
        BatchFile,
        CellColumns,
        EncodedTick,
        OrganismColumns,
        Storage,
        TickColumns,
        encode_ticks,
        new_run_id,
    )
    from ticklake.ticks import TickRange
    from ticklake.topics import (
        Database,
        DeadLetter,
        DeadLetterFilter,
        GroupStatus,
        HeldClaim,
        Message,
        Run,
        StoredMessage,
        TopicReader,
        TopicStatus,
        TopicWriter,
    )
    from ticklake.topics.admin import Claims, DeadLetters, Groups
    from ticklake.world import World

    __version__: str

# Where each public name is. A module is imported when its first name is used: topics need no Spark, contracts no
# database.
_HOMES = {
    "ticklake.consumer": ("ConsumerFunction", "IdempotentConsumer", "Outbox", "ProcessedMessages", "Relay"),
    "ticklake.contracts": (
        *("BatchInfo", "EnvironmentConfig", "MetadataInfo", "RunCompleted"),
        *("SimulationMetadata", "TickData"),
    ),
    "ticklake.database": ("Transaction",),
    "ticklake.events": ("DeadBatch", "Event", "EventBus", "IndexerQueue"),
    "ticklake.indexers.batch": ("BatchIndexer",),
    "ticklake.indexers.events": ("EventIndexer",),
    "ticklake.lake.lake": ("Lake",),
    "ticklake.lake.read.reading": ("Rows", "read"),
    "ticklake.lake.read.rebuild": ("cells_at",),
    "ticklake.lake.table": ("Table",),
    "ticklake.services": (
        *("CompletionService", "MetadataPersistenceService", "PersistenceOptions", "PersistenceService"),
        *("Producer", "Service", "TickQueue"),
    ),
    "ticklake.storage": (
        *("BatchFile", "CellColumns", "EncodedTick", "OrganismColumns", "Storage", "TickColumns"),
        *("encode_ticks", "new_run_id"),
    ),
    "ticklake.ticks": ("TickRange",),
    "ticklake.topics": (
        *("Database", "DeadLetter", "DeadLetterFilter", "GroupStatus", "HeldClaim", "Message", "Run"),
        *("StoredMessage", "TopicReader", "TopicStatus", "TopicWriter"),
    ),
    "ticklake.topics.admin": ("Claims", "DeadLetters", "Groups"),
    "ticklake.world": ("World",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_MODULES = ("errors", "spark")

__all__ = [
    "BatchFile",
    "BatchIndexer",
    "BatchInfo",
    "CellColumns",
    "Claims",
    "CompletionService",
    "ConsumerFunction",
    "Database",
    "DeadBatch",
    "DeadLetter",
    "DeadLetterFilter",
    "DeadLetters",
    "EncodedTick",
    "EnvironmentConfig",
    "Event",
    "EventBus",
    "EventIndexer",
    "GroupStatus",
    "Groups",
    "HeldClaim",
    "IdempotentConsumer",
    "IndexerQueue",
    "Lake",
    "Message",
    "MetadataInfo",
    "MetadataPersistenceService",
    "OrganismColumns",
    "Outbox",
    "PersistenceOptions",
    "PersistenceService",
    "ProcessedMessages",
    "Producer",
    "Relay",
    "Rows",
    "Run",
    "RunCompleted",
    "Service",
    "SimulationMetadata",
    "Storage",
    "StoredMessage",
    "Table",
    "TickColumns",
    "TickData",
    "TickQueue",
    "TickRange",
    "TopicReader",
    "TopicStatus",
    "TopicWriter",
    "Transaction",
    "World",
    "__version__",
    "cells_at",
    "encode_ticks",
    "new_run_id",
    "read",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("ticklake")
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
