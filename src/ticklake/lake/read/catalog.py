"""What a lake holds, from directory names and Delta logs alone: no Parquet file is opened."""

from __future__ import annotations

import json
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ticklake.lake.delta import (
    DeltaError,
    DeltaTable,
    check_readable,
    check_run,
    dataset_of,
    one_line,
    paths_of,
    recorded,
)
from ticklake.lake.empty import EmptyTicks
from ticklake.lake.errors import DamagedCommit, LakeNotFound, RunNotInLake, TableUnreadable
from ticklake.lake.table import is_table_name
from ticklake.places import lake_path
from ticklake.storage import is_safe
from ticklake.ticks import TickRange


@dataclass(frozen=True)
class TableFacts:
    """Figures of one table. `ticks` are the first and the last it has, with rows or without; None if it has none."""

    name: str
    version: int
    rows: int
    files: int
    bytes: int
    ticks: TickRange | None


class Catalog:
    """A lake to read from, `LAKE/<run id>/<table>`. Whatever else lies in the directory is ignored."""

    def __init__(self, root: str | PathLike[str]) -> None:
        self.root = lake_path(root)
        if not self.root.is_dir():
            raise LakeNotFound(lake=self.root)

    def runs(self) -> list[str]:
        """The runs that have tables, oldest first."""
        return sorted(entry.name for entry in self.root.iterdir() if self.tables(entry.name))

    def tables(self, run_id: str) -> list[str]:
        """A folder whose name is no table's, such as `cells.old`, was put aside by somebody."""
        if not is_safe(run_id):
            return []
        found = (log.parent.name for log in (self.root / run_id).glob("*/_delta_log"))
        return sorted(filter(is_table_name, found))

    def chosen(self, run_id: str | None) -> list[str]:
        """All runs, or just the one asked for, which must be there."""
        runs = self.runs()
        if run_id is None:
            return runs
        if run_id not in runs:
            raise RunNotInLake(run_id=run_id, lake=self.root, found=", ".join(runs[-5:]) or "none")
        return [run_id]

    def facts(self, run_id: str, table: str) -> TableFacts:
        delta = self.open(run_id, table)
        adds = pa.table(delta.get_add_actions(flatten=True))
        return TableFacts(
            name=table,
            version=int(delta.version()),
            rows=pc.sum(adds["num_records"], min_count=0).as_py(),
            files=adds.num_rows,
            bytes=pc.sum(adds["size_bytes"], min_count=0).as_py(),
            ticks=_tick_range(adds, empty_of(delta, self.root / run_id / table)),
        )

    def history(self, run_id: str, table: str, limit: int) -> list[dict[str, Any]]:
        """What the last commits say of themselves, newest first."""
        try:
            return self.open(run_id, table).history(limit)
        except (DeltaError, OSError) as error:
            # Another engine may have written what delta-rs does not understand.
            raise TableUnreadable(table=self.root / run_id / table, reason=one_line(error)) from error

    def dataset(self, run_id: str, table: str) -> pa.dataset.Dataset:
        return dataset_of(self.open(run_id, table), self.root / run_id / table)

    def files(self, run_id: str, table: str) -> list[str]:
        """Where the Parquet files of the table are."""
        directory = (self.root / run_id / table).absolute()
        return list(map(str, paths_of(self.open(run_id, table), directory)))

    def open(self, run_id: str, table: str) -> DeltaTable:
        directory = self.root / run_id / table
        if not (is_safe(run_id) and is_safe(table)):
            raise TableUnreadable(table=repr(f"{run_id}/{table}"), reason="run and table must be plain names")
        try:
            delta = DeltaTable(directory)
        except (DeltaError, OSError) as error:
            raise TableUnreadable(table=directory, reason=one_line(error)) from error
        check_readable(delta, directory)
        check_run(delta, directory, run_id)
        return delta


def empty_of(delta: DeltaTable, directory: Path) -> EmptyTicks:
    """The ticks that a table has and that have no row: only its commits name them."""
    try:
        return recorded(directory / "_delta_log", str(delta.metadata().id), int(delta.version())).empty
    except DamagedCommit as error:
        raise TableUnreadable(table=directory, reason=one_line(error)) from error


def _tick_range(adds: pa.Table, empty: EmptyTicks) -> TickRange | None:
    ranges = [TickRange(first, last) for first, last, _ in json.loads(empty.text())]
    if "min.tick_number" in adds.schema.names:
        low, high = pc.min(adds["min.tick_number"]).as_py(), pc.max(adds["max.tick_number"]).as_py()
        ranges += [] if low is None or high is None else [TickRange(low, high)]
    return TickRange(min(one.start for one in ranges), max(one.end for one in ranges)) if ranges else None
