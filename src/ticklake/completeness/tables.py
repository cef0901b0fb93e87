"""The tables of a run in a lake: names, folders, keys, ids, and the indexers that fill them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from ticklake.completeness.contents import Contents
from ticklake.contracts import SimulationMetadata
from ticklake.database.errors import DatabaseDamaged
from ticklake.indexers.batch import BatchIndexer
from ticklake.indexers.registry import builtin_of
from ticklake.insights import gone_tables, names_by_id
from ticklake.lake.cells import cells_in
from ticklake.lake.delta import Location
from ticklake.lake.errors import TableUnreadable
from ticklake.lake.metadata import TABLE as METADATA
from ticklake.lake.metadata import disagreement
from ticklake.lake.read import Catalog, lost_metadata
from ticklake.lake.verify import TICK, damaged_files, key_of, properties_of, table_id
from ticklake.topics import Run


class Tables:
    """The tables of a run. Without a catalog there are none."""

    def __init__(self, run_id: str, catalog: Catalog | None, runs: Sequence[Run] = ()) -> None:
        """`runs` is the run in each database that has it."""
        self._run_id, self._catalog, self._runs = run_id, catalog, runs

    @cached_property
    def gone(self) -> dict[str, str]:
        """The tables that a database knows of and that are gone from the lake, and what to do."""
        if self._catalog is None:
            return {}
        try:
            return {name: str(error) for name, error in gone_tables(self._catalog, self._run_id, self._runs).items()}
        except DatabaseDamaged:
            return {}  # the check of the messages reports it

    def names(self, only: Sequence[str] = ()) -> list[str]:
        """Returns the given tables; by default all tables of the run except `metadata`, also those that are gone."""
        found = self._catalog.tables(self._run_id) if self._catalog is not None else []
        return [table for table in list(only) or [*found, *self.gone] if table != METADATA]

    def metadata(self, only: Sequence[str], stored: SimulationMetadata) -> str | None:
        """Returns what is wrong with the table `metadata`; None if it was not requested or was never created."""
        if only and METADATA not in only:
            return None
        if self._catalog is None:
            return None
        if METADATA not in self._catalog.tables(self._run_id):
            return lost_metadata(self._catalog, self._run_id, self.gone) or None
        return disagreement(self.location(METADATA), stored) or self._refused(METADATA)

    def _refused(self, table: str) -> str:
        """Returns why a table cannot be opened; an empty text if it can."""
        try:
            if self._catalog is not None:
                self._catalog.open(self._run_id, table)
        except TableUnreadable as error:
            return str(error)
        return ""

    def copies(self) -> list[list[str]]:
        """Returns groups of tables with the same id, which are copies. A coordinator cannot distinguish them."""
        found = names_by_id(self._catalog, self._run_id) if self._catalog is not None else {}
        return [names for names in found.values() if len(names) > 1]

    def location(self, table: str) -> Location:
        catalog = self._catalog
        return Location.of(f"{self._run_id}/{table}") if catalog is None else catalog.location(self._run_id, table)

    def exists(self, table: str) -> bool:
        return self.location(table).exists()

    def key(self, table: str) -> tuple[str, ...]:
        """Returns the key of a table. An unreadable table is treated as a table of ticks; its verdict says why."""
        try:
            return key_of(self.location(table))
        except TableUnreadable:
            return (TICK,)

    def contents(self, table: str, *, count_rows: bool, with_properties: bool = False) -> Contents:
        """Reads a table. If it is unreadable or of another run, raises only if rows are not counted."""
        location = self.location(table)
        return Contents.read(location, self._run_id, count_rows=count_rows, with_properties=with_properties)

    def id(self, table: str) -> str:
        """Returns the id of a table; empty if it does not exist or cannot be read."""
        try:
            return table_id(self.location(table)) or ""
        except TableUnreadable:
            return ""

    def indexer(self, table: str) -> type[BatchIndexer] | None:
        """Returns the built-in indexer of a table; None if there is none."""
        try:
            return builtin_of(table, cells_in(properties_of(self.location(table))))
        except TableUnreadable:
            return builtin_of(table)

    def damaged(self, table: str) -> dict[str, str]:
        """Returns the damaged files of a table, with the reason. Needs no rows to compare with."""
        return damaged_files(self.location(table), self.key(table)[0]) if self.exists(table) else {}
