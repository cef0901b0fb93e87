"""The log of a Delta table: opened, created, committed to by compare-and-swap, and synced to disk."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from ticklake import faults
from ticklake.errors import LakeUnwritable, OtherTableSchema, UnknownTableFormat
from ticklake.lake.durable import make_directory, sync_directory, sync_file
from ticklake.lake.empty import Ticks, recorded
from ticklake.lake.parquet import ParquetFile

FORMAT = "1"


class CommitConflict(Exception):
    """Another writer committed first: look again at what it added."""


class DeltaLog:
    """One table's log as of the last refresh. Opening it creates the table where it is missing."""

    def __init__(self, directory: Path, name: str, schema: pa.Schema) -> None:
        self.directory = directory
        self._name = name
        self._schema = schema
        self._log = directory / "_delta_log"
        self._synced = -1
        _set_torn_commits_aside(self._log, look_at=1)
        self._delta = self._open()

    @property
    def version(self) -> int:
        return int(self._delta.version())

    @property
    def id(self) -> str:
        """The table's own id: a table made anew in the same place has another."""
        return str(self._delta.metadata().id)

    def refresh(self) -> None:
        """Sees what others have committed since."""
        self._delta.update_incremental()

    def files(self) -> pa.Table:
        """The files of the table with their statistics."""
        return pa.table(self._delta.get_add_actions(flatten=True))

    def recorded_empty(self) -> Ticks:
        """The ticks that were indexed and have no row."""
        return recorded(self._delta)

    def commit(self, files: Sequence[ParquetFile], provenance: Mapping[str, str]) -> None:
        """Adds the files in one commit right after the version last seen, or CommitConflict. Durable on return."""
        now = int(time.time() * 1000)
        adds: list[AddAction | RemoveAction] = [
            AddAction(file.path, file.size, {}, now, True, file.stats) for file in files
        ]
        properties = CommitProperties(custom_metadata=dict(provenance), max_commit_retries=0)
        faults.reach("lake.commit.before")
        try:
            self._delta.create_write_transaction(adds, "append", self._schema, commit_properties=properties)
        except CommitFailedError as error:
            raise CommitConflict from error
        except (DeltaError, OSError) as error:
            raise LakeUnwritable(directory=str(self.directory), reason=one_line(error)) from error
        faults.reach("lake.commit.after")
        self.refresh()
        self.sync()

    def has(self, file: ParquetFile) -> bool:
        """Whether the table lists this very file."""
        return file.path in self.files().column("path").to_pylist()

    def _open(self) -> DeltaTable:
        try:
            delta = DeltaTable(self.directory)
        except TableNotFoundError:
            delta = self._create()
        except DeltaError:
            _set_torn_checkpoints_aside(self._log)
            _set_torn_commits_aside(self._log, look_at=None)
            delta = DeltaTable(self.directory)
        found = delta.metadata().configuration.get("ticklake.format", FORMAT)
        if found != FORMAT:
            raise UnknownTableFormat(directory=str(self.directory), found=found, known=FORMAT)
        columns = pa.schema(delta.schema().to_arrow()).names
        if columns != self._schema.names:
            raise OtherTableSchema(directory=str(self.directory), found=columns, wanted=self._schema.names)
        return delta

    def _create(self) -> DeltaTable:
        try:
            make_directory(self._log)
            DeltaTable.create(
                self.directory,
                self._schema,
                mode="ignore",
                name=self._name,
                # The log tells where rows came from and which ticks have none: that is to be kept.
                configuration={"ticklake.format": FORMAT, "delta.logRetentionDuration": "interval 3650 days"},
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

    def sync(self) -> None:
        """Makes every commit up to the version last seen durable, whoever made it."""
        if self._synced >= self.version:
            return
        try:
            self._sync_through(self.version)
        except OSError as error:
            raise LakeUnwritable(directory=str(self._log), reason=error) from error

    def _sync_through(self, version: int) -> None:
        """Others' commits that ours builds on must be as durable as ours."""
        for number in range(self._synced + 1, version + 1):
            for name in (f"{number:020d}.json", f"{number:020d}.checkpoint.parquet"):
                if (self._log / name).exists():
                    sync_file(self._log / name)
        sync_directory(self._log)
        self._synced = version


def _set_torn_commits_aside(log: Path, look_at: int | None) -> None:
    """A power cut can leave the newest commits empty or cut off: usually one, more where several writers competed.

    A commit is acknowledged only when all before it are on disk. So a torn one was not, nor was any after it: they are
    written again. `look_at` is how many of the newest to look at, None for all.
    """
    commits = sorted(path for path in log.glob("*.json") if path.stem.isdigit())
    looked_at = commits[-look_at:] if look_at else commits
    torn = next((commit for commit in looked_at if not _is_whole(commit)), None)
    if torn is not None:
        for commit in reversed(commits[commits.index(torn) :]):
            commit.rename(commit.with_suffix(".json.torn"))
        sync_directory(log)


def _set_torn_checkpoints_aside(log: Path) -> None:
    """A checkpoint only saves reading: every commit it sums up is still there, so a torn one can go."""
    for checkpoint in log.glob("*.checkpoint.parquet"):
        try:
            pq.read_metadata(checkpoint)
        except (OSError, pa.ArrowInvalid):
            checkpoint.rename(checkpoint.with_suffix(".parquet.torn"))
    (log / "_last_checkpoint").unlink(missing_ok=True)
    sync_directory(log)


def one_line(error: Exception) -> str:
    """What delta-rs says first; below it come frames that nobody can read."""
    lines = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _is_whole(commit: Path) -> bool:
    try:
        lines = commit.read_bytes().splitlines()
        return bool(lines) and all(isinstance(json.loads(line), dict) for line in lines)
    except ValueError:
        return False
