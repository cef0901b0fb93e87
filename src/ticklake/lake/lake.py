"""Opens the tables of a lake for writing. A lake is a directory of runs, each a directory of tables."""

from __future__ import annotations

from pathlib import Path

from ticklake.checks.places import lake_path
from ticklake.lake.delta import INDEXER, RUN, make_directory
from ticklake.lake.errors import BadTable
from ticklake.lake.ledger import Ledger
from ticklake.lake.table import Table
from ticklake.storage import check_run_id, is_safe


class Lake:
    """`LAKE/<run id>/<table>`."""

    def __init__(self, root: str | Path) -> None:
        self.root = lake_path(root).absolute()

    def directory(self, run_id: str, table: str) -> Path:
        """Returns the folder of a table, whether it exists or not."""
        if not is_safe(table):
            raise BadTable(name=table, reason="it becomes a folder and is not a plain name")
        return self.root / check_run_id(run_id) / table

    def ledger(self, run_id: str, table: Table, indexer: str = "") -> Ledger:
        """Opens a table for indexing and creates it if it is missing. It must belong to this run.

        `indexer` is MODULE:CLASS of a custom indexer, as `ticklake index --table` expects it.
        """
        directory = self.directory(run_id, table.name)
        make_directory(directory)
        return Ledger(directory, table, properties={RUN: run_id} | ({INDEXER: indexer} if indexer else {}))
