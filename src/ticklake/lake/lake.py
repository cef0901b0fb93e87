"""Opens the tables of a lake for writing. A lake has runs, and each run has tables."""

from __future__ import annotations

from os import PathLike

from ticklake.lake.delta import INDEXER, RUN, LakeRoot, Location
from ticklake.lake.errors import BadTable
from ticklake.lake.ledger import Ledger
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

    def ledger(self, run_id: str, table: Table, indexer: str = "") -> Ledger:
        """Opens a table for indexing and creates it if it is missing. It must belong to this run.

        `indexer` is MODULE:CLASS of a custom indexer, as `ticklake index --table` expects it.
        """
        location = self.location(run_id, table.name)
        location.make()
        return Ledger(location, table, properties={RUN: run_id} | ({INDEXER: indexer} if indexer else {}))
