"""The tables that a lake has of a run: their names, folders, keys and ids, and the indexers that fill them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ticklake.completeness.contents import Contents
from ticklake.contracts import SimulationMetadata
from ticklake.indexers.batch import BatchIndexer
from ticklake.indexers.registry import INDEXERS
from ticklake.insights import names_by_id
from ticklake.lake.errors import TableUnreadable
from ticklake.lake.metadata import TABLE as METADATA
from ticklake.lake.metadata import disagreement
from ticklake.lake.read import Catalog
from ticklake.lake.verify import TICK, damaged_files, key_of, table_id


class Tables:
    """The tables of a run. Without a catalog there are none."""

    def __init__(self, run_id: str, catalog: Catalog | None) -> None:
        self._run_id, self._catalog = run_id, catalog

    def names(self, only: Sequence[str] = ()) -> list[str]:
        """The tables asked for, or all that the lake has of ticks."""
        found = self._catalog.tables(self._run_id) if self._catalog is not None else []
        return [table for table in list(only) or found if table != METADATA]

    def metadata(self, only: Sequence[str], stored: SimulationMetadata) -> str | None:
        """What is wrong with the table `metadata`; None if it was not asked for, or if there is none."""
        if (only and METADATA not in only) or not self.exists(METADATA):
            return None
        return disagreement(self.directory(METADATA), stored)

    def copies(self) -> list[list[str]]:
        """Tables that have one id, for they are copies of each other: a coordinator takes them for one table."""
        found = names_by_id(self._catalog, self._run_id) if self._catalog is not None else {}
        return [names for names in found.values() if len(names) > 1]

    def directory(self, table: str) -> Path:
        return Path(self._catalog.root if self._catalog is not None else ".") / self._run_id / table

    def exists(self, table: str) -> bool:
        return (self.directory(table) / "_delta_log").is_dir()

    def key(self, table: str) -> tuple[str, ...]:
        """The key that a table says it has. A table that cannot be read counts by ticks: its verdict then says why."""
        try:
            return key_of(self.directory(table))
        except TableUnreadable:
            return (TICK,)

    def contents(self, table: str, *, count_rows: bool, with_properties: bool = False) -> Contents:
        """What a table holds. Raises for one that is unreadable, or of another run, only if rows are not counted."""
        directory = self.directory(table)
        return Contents.read(directory, self._run_id, count_rows=count_rows, with_properties=with_properties)

    def id(self, table: str) -> str:
        """The table's own id; empty if there is no table, or if it cannot be read."""
        try:
            return table_id(self.directory(table)) or ""
        except TableUnreadable:
            return ""

    def damaged(self, table: str) -> dict[str, str]:
        """The files of a table that are not as they were written, with why. This needs no rows to compare with."""
        return damaged_files(self.directory(table), self.key(table)[0]) if self.exists(table) else {}


def indexer_of(table: str) -> type[BatchIndexer] | None:
    """The indexer that comes with TickLake and fills this table; None if there is none."""
    kinds = {kind.table.name: kind for kind in INDEXERS.values() if issubclass(kind, BatchIndexer) and kind.table}
    return kinds.get(table)
