"""Finds indexer classes: built-in ones by name, and those in modules of the user."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Iterable
from typing import Any

from ticklake.indexers.analytics import PER_TICK
from ticklake.indexers.base import Indexer
from ticklake.indexers.batch import BatchIndexer
from ticklake.indexers.builtin import (
    OF_CELLS,
    DummyIndexer,
    EnvironmentIndexer,
    MetadataIndexer,
    MinimalBatchIndexer,
    OrganismIndexer,
    SimpleBatchIndexer,
)
from ticklake.indexers.errors import RowsMissing, UnknownIndexer, UnknownTable
from ticklake.lake.cells import ALL
from ticklake.lake.session import ship_with_jobs
from ticklake.text import error_text

INDEXERS: dict[str, type[Indexer]] = {
    kind.__name__: kind
    for kind in (
        MetadataIndexer,
        EnvironmentIndexer,
        OrganismIndexer,
        *PER_TICK,
        DummyIndexer,
        SimpleBatchIndexer,
        MinimalBatchIndexer,
    )
}


def indexer_of(class_name: str, cells: str = ALL) -> type[Indexer]:
    """Returns the class that a configuration names: a built-in indexer, or `module:Class`."""
    kind = INDEXERS.get(class_name) or _import_indexer(class_name)
    return OF_CELLS[cells] if kind is EnvironmentIndexer else kind


def builtin_of(table: str, cells: str = ALL) -> type[BatchIndexer] | None:
    """Returns the built-in indexer of a table that has these cells; None if there is none."""
    kinds = {(kind.table.name, kind.table.cells): kind for kind in _builtin() if kind.table}
    return kinds.get((table, cells))


def _builtin() -> list[type[BatchIndexer]]:
    return [*(kind for kind in INDEXERS.values() if issubclass(kind, BatchIndexer)), *OF_CELLS.values()]


def indexers_of(tables: Iterable[str], cells: str = ALL) -> list[type[BatchIndexer]]:
    """Returns the indexers of these tables, which can also be `module:Class`. Default: cells and organisms."""
    of_cells = OF_CELLS[cells].table
    kinds = {kind.table.name: kind for kind in (*reversed(_builtin()), OF_CELLS[cells]) if kind.table}
    wanted = list(tables) or [*([of_cells.name] if of_cells else []), "organism_data"]
    for table in wanted:
        if table not in kinds and ":" not in table:
            raise UnknownTable(table=table, known=", ".join(kinds))
    found = {table: kinds.get(table) or _import_indexer(table) for table in wanted}
    for name, kind in found.items():
        if kind.table is None:
            raise UnknownIndexer(name=name, reason="it has no table")
    return list(found.values())


def analytics_of(tables: Iterable[str]) -> list[str]:
    """Returns the tables of analytics with these names. Default: all that are made from single ticks."""
    known = [kind.table.name for kind in PER_TICK if kind.table]
    for table in tables:
        if table not in known:
            raise UnknownTable(table=table, known=", ".join(known))
    return list(tables) or known


def _import_indexer(class_name: str) -> type[BatchIndexer]:
    """Imports `module:Class` from the current directory or from Python's path."""
    module_name, _, name = class_name.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
        kind: Any = getattr(module, name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UnknownIndexer(name=class_name, reason=error) from error
    except (Exception, SystemExit) as error:  # user code may raise anything
        raise UnknownIndexer(name=class_name, reason=f"its module raises {_with_place(error)}") from error
    if not (isinstance(kind, type) and issubclass(kind, BatchIndexer)):
        raise UnknownIndexer(name=class_name, reason="it is not a subclass of BatchIndexer")
    if kind.table is not None and kind.rows is BatchIndexer.rows:
        raise UnknownIndexer(name=class_name, reason=str(RowsMissing()))
    ship_with_jobs(module)
    return kind


def _with_place(error: BaseException) -> str:
    """Returns the text of an error with the line that raised it."""
    if isinstance(error, SyntaxError):
        return error_text(error)  # already has the line
    line = traceback.extract_tb(error.__traceback__)[-1]
    return f"{error_text(error)} ({line.filename}, line {line.lineno})"
