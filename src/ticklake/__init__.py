"""Ticks in, tables out, exactly once."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ticklake.contracts import BatchInfo, MetadataInfo, RunCompleted, SimulationMetadata, TickData
    from ticklake.ticks import TickRange
    from ticklake.topics import Database

# Imported when first asked for: topics need no Spark, contracts no database.
_HOMES = {
    "BatchInfo": "ticklake.contracts",
    "Database": "ticklake.topics",
    "MetadataInfo": "ticklake.contracts",
    "RunCompleted": "ticklake.contracts",
    "SimulationMetadata": "ticklake.contracts",
    "TickData": "ticklake.contracts",
    "TickRange": "ticklake.ticks",
}

__all__ = ["BatchInfo", "Database", "MetadataInfo", "RunCompleted", "SimulationMetadata", "TickData", "TickRange"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
