"""Lists what a lake holds, from names of folders and Delta logs. Opens a Parquet file only if the log is not enough."""

from __future__ import annotations

import json
from dataclasses import dataclass
from os import PathLike
from typing import Any

import pyarrow as pa

from ticklake.lake.delta import (
    DeltaError,
    DeltaTable,
    LakeRoot,
    Location,
    TableFile,
    check_readable,
    check_run,
    contents_of,
    dataset_of,
    files_of,
    is_counted_by,
    one_line,
    opened_table,
    recorded,
    rows_in,
    sizes_of,
    unreadable,
)
from ticklake.lake.empty import EmptyTicks
from ticklake.lake.errors import DamagedCommit, LakeNotFound, RunFolderUnreadable, RunNotInLake, TableUnreadable
from ticklake.lake.table import is_table_name
from ticklake.storage import is_safe
from ticklake.ticks import TickRange


@dataclass(frozen=True)
class TableFacts:
    """Figures of one table. `ticks` is the range from its first to its last tick; None if it has none.

    `rows` and `ticks` are None if a file without statistics in the log cannot be read.
    """

    name: str
    version: int
    rows: int | None
    files: int
    bytes: int
    ticks: TickRange | None


class Catalog:
    """A lake to read from, `LAKE/<run id>/<table>`. Other files and folders are ignored."""

    def __init__(self, root: str | PathLike[str]) -> None:
        self.root = LakeRoot.of(root)
        if not self.root.exists():
            raise LakeNotFound(lake=self.root)

    def runs(self) -> list[str]:
        """Returns the runs that have tables, oldest first, including those whose folder cannot be read."""
        return sorted(name for name in self.root.names() if self._may_have_tables(name))

    def tables(self, run_id: str) -> list[str]:
        """Returns the tables of a run, including those that cannot be read, such as one that has lost its log.

        Skips folders without the name of a table, such as `cells.old`. Raises `RunFolderUnreadable` if nobody can say
        which tables there are.
        """
        names = filter(is_table_name, self.root.names_in(run_id))
        return sorted(name for name in names if self._may_be_table(self.location(run_id, name)))

    def location(self, run_id: str, table: str) -> Location:
        """Returns the location of a table, whether it exists or not."""
        return self.root.location(run_id, table)

    @staticmethod
    def _may_be_table(location: Location) -> bool:
        return location.may_exist() or location.lacks_log()

    def _may_have_tables(self, run_id: str) -> bool:
        try:
            return bool(self.tables(run_id))
        except RunFolderUnreadable:
            return True

    def chosen(self, run_id: str | None) -> list[str]:
        """Returns all runs, or the given run. Raises `RunNotInLake` if it does not exist."""
        runs = self.runs()
        if run_id is None:
            return runs
        if run_id not in runs:
            raise RunNotInLake(run_id=run_id, lake=self.root, found=", ".join(runs[-5:]) or "none")
        return [run_id]

    def facts(self, run_id: str, table: str) -> TableFacts:
        delta, location = self.open(run_id, table), self.location(run_id, table)
        sizes = sizes_of(delta)
        rows, ticks = _figures(delta, location)
        return TableFacts(table, int(delta.version()), rows, len(sizes), sum(sizes), ticks)

    def history(self, run_id: str, table: str, limit: int) -> list[dict[str, Any]]:
        """Returns the metadata of the last commits, newest first."""
        try:
            return self.open(run_id, table).history(limit)
        except (DeltaError, OSError) as error:
            # Another engine may have written commits that delta-rs cannot read.
            raise TableUnreadable(table=self.location(run_id, table), reason=one_line(error)) from error

    def dataset(self, run_id: str, table: str) -> pa.dataset.Dataset:
        return dataset_of(self.open(run_id, table), self.location(run_id, table))

    def files(self, run_id: str, table: str) -> list[TableFile]:
        """Returns the Parquet files of the table."""
        return files_of(self.open(run_id, table), self.location(run_id, table).absolute())

    def open(self, run_id: str, table: str) -> DeltaTable:
        location = self.location(run_id, table)
        if not (is_safe(run_id) and is_safe(table)):
            raise TableUnreadable(table=repr(f"{run_id}/{table}"), reason="run and table must be plain names")
        try:
            delta = opened_table(location)
        except (DeltaError, OSError) as error:
            raise unreadable(location, error) from error
        check_readable(delta, location)
        check_run(delta, location, run_id)
        return delta


def empty_of(delta: DeltaTable, location: Location) -> EmptyTicks:
    """Returns the ticks of a table that have no rows, from its commits."""
    try:
        return recorded(location, str(delta.metadata().id), int(delta.version())).empty
    except DamagedCommit as error:
        raise TableUnreadable(table=location, reason=one_line(error)) from error


def _figures(delta: DeltaTable, location: Location) -> tuple[int | None, TickRange | None]:
    """Returns rows and ticks of all files, or None if a file cannot be read."""
    ranges = [TickRange(first, last) for first, last, _ in json.loads(empty_of(delta, location).text())]
    if not is_counted_by(delta, "tick_number"):
        return rows_in(delta, location), _spanning(ranges)
    rows = 0
    for file in contents_of(delta, location, "tick_number"):
        if file is None:
            return None, None
        rows += file.rows
        ranges += [file.bounds] if file.bounds else []
    return rows, _spanning(ranges)


def _spanning(ranges: list[TickRange]) -> TickRange | None:
    return TickRange(min(one.start for one in ranges), max(one.end for one in ranges)) if ranges else None
