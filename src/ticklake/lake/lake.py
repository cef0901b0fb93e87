"""Opens the tables of a lake for writing. A lake has runs, and each run has tables."""

from __future__ import annotations

from os import PathLike

from ticklake.lake.delta import INDEXER, RUN, DeltaError, LakeRoot, Location, opened_table
from ticklake.lake.errors import BadTable
from ticklake.lake.ledger import Ledger, check_cells
from ticklake.lake.table import Table
from ticklake.storage import check_run_id, is_safe


class Lake:
    """`LAKE/<run id>/<table>`."""

    def __init__(self, root: str | PathLike[str]) -> None:
        self.root = LakeRoot.of(root).absolute()

    def location(self, run_id: str, table: str) -> Location:
        """Returns the location of a table, whether it exists or not."""
        if not is_safe(table):
            raise BadTable(name=table, reason="it becomes a folder and is not a plain name")
        return self.root.location(check_run_id(run_id), table)

    def check_cells(self, run_id: str, table: Table) -> None:
        """Raises `OtherCells` if the table exists and has cells of other ticks than its indexer would add."""
        location = self.location(run_id, table.name)
        try:
            found = opened_table(location).metadata().configuration
        except (DeltaError, OSError):
            return  # it does not exist, or opening it for indexing says what is wrong
        check_cells(found, table, location)

    def ledger(self, run_id: str, table: Table, indexer: str = "") -> Ledger:
        """Opens a table for indexing and creates it if it is missing. It must belong to this run.

        `indexer` is MODULE:CLASS of a custom indexer, as `ticklake index --table` expects it.
        """
        location = self.location(run_id, table.name)
        location.make()
        return Ledger(location, table, properties={RUN: run_id} | ({INDEXER: indexer} if indexer else {}))
