"""Which indexers there are: ours by their names, and those of the user's own modules."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Iterable
from typing import Any

from ticklake.indexers.base import Indexer
from ticklake.indexers.batch import BatchIndexer
from ticklake.indexers.builtin import (
    DummyIndexer,
    EnvironmentIndexer,
    MetadataIndexer,
    MinimalBatchIndexer,
    OrganismIndexer,
    SimpleBatchIndexer,
)
from ticklake.indexers.errors import RowsMissing, UnknownIndexer, UnknownTable
from ticklake.lake.session import ship_with_jobs
from ticklake.text import error_text

INDEXERS: dict[str, type[Indexer]] = {
    kind.__name__: kind
    for kind in (
        MetadataIndexer,
        EnvironmentIndexer,
        OrganismIndexer,
        DummyIndexer,
        SimpleBatchIndexer,
        MinimalBatchIndexer,
    )
}


def indexer_of(class_name: str) -> type[Indexer]:
    """The indexer of a name in a configuration: one of ours, or `module:Class`."""
    return INDEXERS.get(class_name) or _own_indexer(class_name)


def indexers_of(tables: Iterable[str]) -> list[type[BatchIndexer]]:
    """The indexers of these tables (or `module:Class`, the user's own); of the usual ones where none is named."""
    kinds = {kind.table.name: kind for kind in INDEXERS.values() if issubclass(kind, BatchIndexer) and kind.table}
    wanted = list(tables) or ["environment_data", "organism_data"]
    for table in wanted:
        if table not in kinds and ":" not in table:
            raise UnknownTable(table=table, known=", ".join(kinds))
    found = {table: kinds.get(table) or _own_indexer(table) for table in wanted}
    for name, kind in found.items():
        if kind.table is None:
            raise UnknownIndexer(name=name, reason="it names no table to write")
    return list(found.values())


def _own_indexer(class_name: str) -> type[BatchIndexer]:
    """`module:Class`, an indexer of the user's own, from the current directory or anywhere Python finds it."""
    module_name, _, name = class_name.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
        kind: Any = getattr(module, name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UnknownIndexer(name=class_name, reason=error) from error
    except (Exception, SystemExit) as error:  # the module is somebody else's and may do anything
        raise UnknownIndexer(name=class_name, reason=f"its module raises {_with_place(error)}") from error
    if not (isinstance(kind, type) and issubclass(kind, BatchIndexer)):
        raise UnknownIndexer(name=class_name, reason="it is no subclass of BatchIndexer")
    if kind.table is not None and kind.rows is BatchIndexer.rows:
        raise UnknownIndexer(name=class_name, reason=str(RowsMissing()))
    ship_with_jobs(module)
    return kind


def _with_place(error: BaseException) -> str:
    """An error of somebody's module, with the line that it comes from."""
    if isinstance(error, SyntaxError):
        return error_text(error)  # names it already
    line = traceback.extract_tb(error.__traceback__)[-1]
    return f"{error_text(error)} ({line.filename}, line {line.lineno})"
