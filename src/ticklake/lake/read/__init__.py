"""Reads the lake: its tables, their rows, frames, series, and SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ticklake.lake.read.catalog import Catalog
from ticklake.lake.read.frames import Frames, OpenTable
from ticklake.lake.read.presence import Presence, lost_metadata, world_of
from ticklake.lake.read.reading import read
from ticklake.lake.read.rebuild import cells_at, found_cells, states_of_cell
from ticklake.lake.read.series import MOST_POINTS, Charted, Series
from ticklake.lake.read.views import create_views, register_ticks, with_delta

if TYPE_CHECKING:
    from ticklake.lake.read.queries import Limits, Result, limited_query, query, texts

__all__ = [
    "MOST_POINTS",
    "Catalog",
    "Charted",
    "Frames",
    "Limits",
    "OpenTable",
    "Presence",
    "Result",
    "Series",
    "cells_at",
    "create_views",
    "found_cells",
    "limited_query",
    "lost_metadata",
    "query",
    "read",
    "register_ticks",
    "states_of_cell",
    "texts",
    "with_delta",
    "world_of",
]


def __getattr__(name: str) -> Any:
    """Imports DuckDB only if SQL is used."""
    if name in ("Limits", "Result", "limited_query", "query", "texts"):
        from ticklake.lake.read import queries

        return getattr(queries, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
