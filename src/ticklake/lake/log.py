"""The log of a Delta table: opened, created, followed, and committed to by compare-and-swap, durably.

A commit is one new file, `_delta_log/<version>.json`, written under another name, synced, and then linked to its own,
which fails if that version is there: so it is whole and on disk before anybody can see it, and costs the same however
long the log is. delta-rs opens the table and writes its checkpoints.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from ticklake import faults
from ticklake.errors import DamagedCommit, LakeUnreadable, LakeUnwritable, OtherTableSchema, UnknownTableFormat
from ticklake.lake import commits, torn
from ticklake.lake.commits import Action, Commit
from ticklake.lake.durable import make_directory, sync_directory, sync_file
from ticklake.lake.guard import committing
from ticklake.lake.parquet import ParquetFile, checksum
from ticklake.lake.snapshot import ANY_TICK, LiveFile, Snapshot
from ticklake.lake.summary import Summary
from ticklake.storage.local import LocalFolder
from ticklake.ticks import TickRange

log = logging.getLogger(__name__)

FORMAT = "1"
KEY = "ticklake.key"
"""The table property that names the columns of its key."""

# Tables of ours are made with writer version 2; a later one may ask for what we do not do.
_WRITER_VERSION = 2
_CHECKPOINT_EVERY = 100


class CommitConflict(Exception):
    """Another writer committed first: look again at what it added."""


class DeltaLog:
    """One table's log as of the last refresh. Opening it creates the table where it is missing."""

    def __init__(self, directory: Path, name: str, schema: pa.Schema, key: Sequence[str] = ()) -> None:
        self.directory = directory
        self._name = name
        self._schema = schema
        self._key = key
        self._ordinal = key[0] if key else ""
        self._log = directory / "_delta_log"
        self._folder = LocalFolder(self._log)
        self._synced = -1
        torn.set_newest_aside(self._log)
        torn.set_damaged_checkpoint_aside(self._log)
        self._load()

    def refresh(self) -> None:
        """Sees what others have committed since: one look where nobody has."""
        if self._birth() != self._born:
            return self._load()
        while (data := commits.read(self._log, self.version + 1)) is not None:
            try:
                commit = commits.decoded(data, self._ordinal)
            except ValueError as error:
                raise DamagedCommit(file=str(self._log / commits.name_of(self.version + 1)), reason=error) from error
            if commit.redefines:
                return self._load()
            self._take(commit)
            self.version += 1
        return None

    def commit(self, files: Sequence[ParquetFile], provenance: Mapping[str, str]) -> None:
        """Adds the files in one commit right after the version last seen, or CommitConflict. Durable on return."""
        now = int(time.time() * 1000)
        actions = commits.added(files, now, data_change=True)
        self._write("WRITE", {"mode": "Append", "partitionBy": "[]"}, files, actions, provenance, now)

    def replace(self, old: Sequence[LiveFile], new: ParquetFile) -> None:
        """Puts one file, with the same rows, in the place of others. Like `commit` in all else."""
        now = int(time.time() * 1000)
        actions = [*commits.removed(old, now, data_change=False), *commits.added([new], now, data_change=False)]
        metrics = {"numRemovedFiles": len(old), "numAddedFiles": 1}
        self._write("OPTIMIZE", {}, [new], actions, {"operationMetrics": metrics}, now)

    def swap(self, old: Sequence[LiveFile], new: Sequence[ParquetFile], provenance: Mapping[str, str]) -> None:
        """Puts files with fewer rows in the place of others. Like `commit` in all else."""
        now = int(time.time() * 1000)
        actions = [*commits.removed(old, now, data_change=True), *commits.added(new, now, data_change=True)]
        self._write("DELETE", {}, new, actions, provenance, now)

    def has(self, file: ParquetFile | LiveFile) -> bool:
        """Whether the table lists this very file."""
        return file.path in self.files

    def sync(self) -> None:
        """Makes every commit up to the version last seen durable, whoever made it."""
        if self._synced >= self.version:
            return
        try:
            if self._synced < 0:
                sync_directory(self.directory)
            # Others' commits that ours builds on must be as durable as ours.
            for number in range(self._synced + 1, self.version + 1):
                if (path := self._log / commits.name_of(number)).exists():
                    sync_file(path)
            sync_directory(self._log)
        except OSError as error:
            raise LakeUnwritable(directory=str(self._log), reason=error) from error
        self._synced = self.version

    def checkpoint(self) -> None:
        """Sums up the log, so that whoever opens the table next need not read every commit."""
        self.sync()
        # Of what is on disk: others may have committed more meanwhile.
        delta = DeltaTable(self.directory, version=self.version)
        with faults.around("lake.checkpoint"):
            delta.create_checkpoint()
        written = self._log / torn.checkpoint_name(self.version)
        for path in (written, self._log / torn.HINT):
            if path.exists():
                sync_file(path)
        self._summary(checksum(written) if written.exists() else "").write(self._log)

    def _summary(self, checkpoint: str) -> Summary:
        return Summary(self.id, self.version, checkpoint=checkpoint)

    def _take(self, commit: Commit) -> None:
        for path in commit.removes:
            self.files.remove(path)
        for file in commit.adds:
            self.files.add(file)

    def _write(
        self,
        operation: str,
        parameters: Mapping[str, str],
        files: Sequence[ParquetFile],
        actions: Sequence[Action],
        metadata: Mapping[str, Any],
        now: int,
    ) -> None:
        info = {"timestamp": now, "operation": operation, "operationParameters": parameters, "engineInfo": "ticklake"}
        faults.reach("lake.commit.before")
        try:
            with committing(self.directory, [file.path for file in files]):
                self._folder.create(commits.name_of(self.version + 1), commits.encoded(info | dict(metadata), actions))
        except FileExistsError as error:
            raise CommitConflict from error
        except OSError as error:
            raise LakeUnwritable(directory=str(self.directory), reason=error) from error
        faults.reach("lake.commit.after")
        self.refresh()
        self.sync()
        if self.version % _CHECKPOINT_EVERY == 0:
            self._checkpoint_if_possible()

    def _checkpoint_if_possible(self) -> None:
        """What was committed stays so, whatever becomes of its checkpoint: the next one sums up as much."""
        try:
            self.checkpoint()
        except (DeltaError, OSError, LakeUnwritable) as error:
            log.warning("No checkpoint of %s at version %d: %s", self.directory, self.version, one_line(error))

    def _load(self) -> None:
        try:
            delta, self.files = self._open()
        except DeltaError as error:
            raise LakeUnreadable(table=self._name, reason=one_line(error)) from error
        self._check(delta)
        self.id = str(delta.metadata().id)
        """The table's own id: a table made anew in the same place has another."""
        self.version = int(delta.version())
        self._born = self._birth()
        self._synced = Summary.read(self._log, self.id).version

    def _birth(self) -> tuple[int, int] | None:
        """What tells a table from one that was made anew in its place."""
        try:
            first = (self._log / commits.name_of(0)).stat()
        except FileNotFoundError:
            return None
        return first.st_ino, first.st_mtime_ns

    def _open(self) -> tuple[DeltaTable, Snapshot]:
        try:
            return self._seen(DeltaTable(self.directory))
        except TableNotFoundError:
            return self._seen(self._create())
        except DeltaError:
            torn.set_checkpoints_aside(self._log)
            torn.set_all_aside(self._log)
            return self._seen(DeltaTable(self.directory))

    def _seen(self, delta: DeltaTable) -> tuple[DeltaTable, Snapshot]:
        return delta, Snapshot(live_files(delta, self._ordinal))

    def _check(self, delta: DeltaTable) -> None:
        found = delta.metadata().configuration.get("ticklake.format", FORMAT)
        if found != FORMAT:
            raise UnknownTableFormat(directory=str(self.directory), found=found, known=FORMAT)
        protocol = delta.protocol()
        if protocol.min_writer_version > _WRITER_VERSION:
            found = f"Delta writer version {protocol.min_writer_version}"
            raise UnknownTableFormat(directory=str(self.directory), found=found, known=f"up to {_WRITER_VERSION}")
        columns = pa.schema(delta.schema().to_arrow()).names
        if columns != self._schema.names:
            raise OtherTableSchema(directory=str(self.directory), found=columns, wanted=self._schema.names)

    def _create(self) -> DeltaTable:
        # The log tells where rows came from and which ticks have none: that is to be kept.
        configuration = {"ticklake.format": FORMAT, "delta.logRetentionDuration": "interval 3650 days"}
        if self._key:
            configuration[KEY] = json.dumps(list(self._key))
        try:
            make_directory(self._log)
            with faults.around("lake.create"):
                DeltaTable.create(
                    self.directory,
                    self._schema,
                    mode="ignore",
                    name=self._name,
                    configuration=configuration,
                    raise_if_key_not_exists=False,
                )
            sync_file(self._log / commits.name_of(0))
            sync_directory(self._log)
        except CommitFailedError:
            # Another indexer created it in the same moment.
            return DeltaTable(self.directory)
        except OSError as error:
            raise LakeUnwritable(directory=str(self.directory), reason=error) from error
        return DeltaTable(self.directory)


def one_line(error: BaseException) -> str:
    """What delta-rs says first; below it come frames that nobody can read."""
    lines = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def live_files(delta: DeltaTable, ordinal: str) -> list[LiveFile]:
    """The files that a table consists of, as delta-rs sees it."""
    adds = pa.table(delta.get_add_actions(flatten=True))
    count = adds.num_rows
    low, high = (
        adds[name].fill_null(missing).to_pylist() if name in adds.schema.names else [missing] * count
        for name, missing in ((f"min.{ordinal}", ANY_TICK.start), (f"max.{ordinal}", ANY_TICK.end))
    )
    rows = adds["num_records"].to_pylist() if "num_records" in adds.schema.names else [None] * count
    paths = map(unquote, adds["path"].to_pylist())
    return list(map(LiveFile, paths, adds["size_bytes"].to_pylist(), rows, map(TickRange, low, high)))
