"""The ledger of a table: which ticks it has, and the commits that add more. The Delta log is the only record."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction

from ticklake import faults
from ticklake.errors import LakeUnwritable, OtherTableSchema, UnknownTableFormat
from ticklake.lake.durable import make_directory, sync_directory, sync_file
from ticklake.lake.parquet import ParquetFile
from ticklake.lake.table import Table
from ticklake.ticks import TickRange

Ticks = npt.NDArray[np.int64]
FORMAT = "1"


class CommitConflict(Exception):
    """Another writer committed first: look again at what it added."""


class Ledger:
    """A Delta table opened for indexing."""

    def __init__(self, directory: Path, table: Table) -> None:
        self.directory = directory
        self.table = table
        self._log = directory / "_delta_log"
        self._synced = -1
        set_torn_commit_aside(self._log)
        self._delta = self._open()
        self._bounds = self._read_bounds()

    @property
    def version(self) -> int:
        return int(self._delta.version())

    def refresh(self) -> None:
        """Sees what others have committed since."""
        before = self.version
        self._delta.update_incremental()
        if self.version != before:
            self._bounds = self._read_bounds()

    def present(self, wanted: Sequence[TickRange]) -> Ticks:
        """The ticks of these ranges that have rows. Reads no file where no file's bounds overlap a range."""
        paths, low, high = self._bounds
        found: list[Ticks] = []
        for ticks in wanted:
            for index in np.flatnonzero((low <= ticks.end) & (high >= ticks.start)):
                found.extend(_ticks_of(self.directory / unquote(paths[index]), ticks))
        return np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)

    def commit(self, files: Sequence[ParquetFile], provenance: Mapping[str, str]) -> None:
        """Adds the files in one commit right after the version last seen, or raises CommitConflict. Durable on return."""
        now = int(time.time() * 1000)
        adds = [AddAction(file.path, file.size, {}, now, True, file.stats) for file in files]
        properties = CommitProperties(custom_metadata=dict(provenance), max_commit_retries=0)
        faults.reach("lake.commit.before")
        try:
            self._delta.create_write_transaction(adds, "append", self.table.schema, commit_properties=properties)
        except CommitFailedError as error:
            raise CommitConflict from error
        except (DeltaError, OSError) as error:
            raise LakeUnwritable(directory=str(self.directory), reason=error) from error
        faults.reach("lake.commit.after")
        self.refresh()
        self._sync()

    def _open(self) -> DeltaTable:
        try:
            delta = DeltaTable(self.directory)
        except TableNotFoundError:
            delta = self._create()
        found = delta.metadata().configuration.get("ticklake.format", FORMAT)
        if found != FORMAT:
            raise UnknownTableFormat(directory=str(self.directory), found=found, known=FORMAT)
        columns = pa.schema(delta.schema().to_arrow())
        if columns.names != self.table.schema.names:
            raise OtherTableSchema(
                directory=str(self.directory), found=columns.names, wanted=self.table.schema.names
            )
        return delta

    def _create(self) -> DeltaTable:
        try:
            make_directory(self._log)
            DeltaTable.create(
                self.directory,
                self.table.schema,
                mode="ignore",
                name=self.table.name,
                configuration={"ticklake.format": FORMAT},
                raise_if_key_not_exists=False,
            )
        except CommitFailedError:
            # Another indexer created it in the same moment.
            return DeltaTable(self.directory)
        except OSError as error:
            raise LakeUnwritable(directory=str(self.directory), reason=error) from error
        delta = DeltaTable(self.directory)
        self._sync_through(int(delta.version()))
        return delta

    def _read_bounds(self) -> tuple[list[str], Ticks, Ticks]:
        actions = pa.table(self._delta.get_add_actions(flatten=True))
        if not actions.num_rows:
            return [], np.empty(0, np.int64), np.empty(0, np.int64)
        # A file without statistics (another engine may write such) could hold any tick.
        everything = TickRange(0, np.iinfo(np.int64).max)
        low = actions.column("min.tick_number").fill_null(everything.start).to_numpy()
        high = actions.column("max.tick_number").fill_null(everything.end).to_numpy()
        return actions.column("path").to_pylist(), low, high

    def _sync(self) -> None:
        try:
            self._sync_through(self.version)
        except OSError as error:
            raise LakeUnwritable(directory=str(self._log), reason=error) from error

    def _sync_through(self, version: int) -> None:
        """Others' commits that ours builds on must be as durable as ours."""
        for number in range(self._synced + 1, version + 1):
            path = _commit_file(self._log, number)
            if path.exists():
                sync_file(path)
        sync_directory(self._log)
        self._synced = version


def _commit_file(log: Path, version: int) -> Path:
    return log / f"{version:020d}.json"


def set_torn_commit_aside(log: Path) -> None:
    """A power cut can leave the newest commit empty or cut off. It was never acknowledged: redelivery writes it again."""
    commits = sorted(path for path in log.glob("*.json") if path.stem.isdigit()) if log.is_dir() else []
    if commits and not _is_whole(commits[-1]):
        commits[-1].rename(commits[-1].with_suffix(".json.torn"))
        sync_directory(log)


def _is_whole(commit: Path) -> bool:
    try:
        lines = commit.read_bytes().splitlines()
        return bool(lines) and all(isinstance(json.loads(line), dict) for line in lines)
    except ValueError:
        return False


def _ticks_of(path: Path, wanted: TickRange) -> Iterator[Ticks]:
    """The ticks of one Parquet file within a range, from the bounds of its row groups where those tell."""
    with pq.ParquetFile(path) as file:
        column = file.schema_arrow.get_field_index("tick_number")
        for group in range(file.num_row_groups):
            bounds = file.metadata.row_group(group).column(column).statistics
            if bounds is not None and bounds.has_min_max:
                if bounds.max < wanted.start or bounds.min > wanted.end:
                    continue
                if bounds.min == bounds.max:
                    yield np.array([bounds.min], np.int64)
                    continue
            ticks = np.unique(file.read_row_group(group, columns=["tick_number"]).column(0).to_numpy())
            yield ticks[(ticks >= wanted.start) & (ticks <= wanted.end)]
