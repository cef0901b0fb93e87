"""The lake as a place: a directory of runs, each a directory of tables."""

from __future__ import annotations

from pathlib import Path

from ticklake.lake.durable import make_directory
from ticklake.lake.ledger import Ledger
from ticklake.lake.table import Table
from ticklake.storage.names import check_run_id, is_safe


class Lake:
    """`LAKE/<run id>/<table>`."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).absolute()

    def runs(self) -> list[str]:
        """The runs that have tables, oldest first (run ids start with their time)."""
        if not self.root.is_dir():
            return []
        return sorted(entry.name for entry in self.root.iterdir() if is_safe(entry.name) and self.tables(entry.name))

    def tables(self, run_id: str) -> list[str]:
        return sorted(log.parent.name for log in self._run(run_id).glob("*/_delta_log"))

    def directory(self, run_id: str, table: str) -> Path:
        return self._run(run_id) / table

    def ledger(self, run_id: str, table: Table) -> Ledger:
        """Opens a table for indexing, creating it where it is missing."""
        directory = self.directory(run_id, table.name)
        make_directory(directory)
        return Ledger(directory, table)

    def _run(self, run_id: str) -> Path:
        return self.root / check_run_id(run_id)
