"""Ticks in, tables out, exactly once."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ticklake.contracts import BatchInfo, MetadataInfo, RunCompleted, SimulationMetadata, TickData
    from ticklake.indexers.batch import BatchIndexer
    from ticklake.lake.read import read
    from ticklake.lake.table import Table
    from ticklake.storage import Storage
    from ticklake.ticks import TickRange
    from ticklake.topics import Database
    from ticklake.world import World

# Imported when first asked for: topics need no Spark, contracts no database.
_HOMES = {
    "BatchIndexer": "ticklake.indexers.batch",
    "BatchInfo": "ticklake.contracts",
    "Database": "ticklake.topics",
    "MetadataInfo": "ticklake.contracts",
    "RunCompleted": "ticklake.contracts",
    "SimulationMetadata": "ticklake.contracts",
    "Storage": "ticklake.storage.files",
    "Table": "ticklake.lake.table",
    "TickData": "ticklake.contracts",
    "TickRange": "ticklake.ticks",
    "World": "ticklake.world",
    "read": "ticklake.lake.read.reading",
}

__all__ = [
    "BatchIndexer",
    "BatchInfo",
    "Database",
    "MetadataInfo",
    "RunCompleted",
    "SimulationMetadata",
    "Storage",
    "Table",
    "TickData",
    "TickRange",
    "World",
    "read",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
