"""The log of a Delta table: opens it, creates it, follows it, and commits by compare-and-swap, durably.

A commit is one new file, `_delta_log/<version>.json`. It is written under a temporary name, synced, and then linked to
its final name, which fails if that version exists. So it is complete and on disk before others see it, and its cost
does not depend on the length of the log. It requires that the commit before it is the one that was read, and that the
table is still in its place afterwards. delta-rs opens the table, and makes checkpoints in a temporary folder.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError

from ticklake import faults
from ticklake.errors import TickLakeError
from ticklake.lake.delta import checkpoints, commits, history, recovery, scratch
from ticklake.lake.delta.commits import Action, Commit
from ticklake.lake.delta.files import bounded, live_files, statistics_property
from ticklake.lake.delta.folder import TableFolder
from ticklake.lake.delta.history import Head
from ticklake.lake.delta.parquet import ParquetFile, checksum_of
from ticklake.lake.delta.snapshot import LiveFile, Snapshot
from ticklake.lake.delta.summary import Summary
from ticklake.lake.delta.table_properties import KEY, RUN, check_readable, check_run, growth, one_line, opened_table
from ticklake.lake.delta.types import columns_of
from ticklake.lake.errors import (
    DamagedCommit,
    LakeUnreadable,
    LakeUnwritable,
    OtherTableSchema,
    TableAppendOnly,
    TableReplaced,
    UnknownTableFormat,
)

if TYPE_CHECKING:
    from ticklake.lake.delta.location import Location
    from ticklake.ticks import TickRange

log = logging.getLogger(__name__)

_GONE = "it was removed. To create it again, restart its indexer"
FORMAT = "1"

# Our tables have writer version 2. Later versions may need features that we do not support.
_WRITER_VERSION = 2
_CHECKPOINT_EVERY = 100


class CommitConflict(Exception):
    """The table has changed since it was read: another writer committed, or an operator changed it."""


class DeltaLog:
    """The log of one table as of the last refresh. Opening it creates the table if it is missing (default)."""

    def __init__(
        self,
        location: Location,
        name: str,
        schema: pa.Schema,
        key: Sequence[str] = (),
        *,
        create: bool = True,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """`properties` are additional properties of a new table. If they name a run, the table must belong to that run
        whenever it is opened."""
        self.location = location
        self._may_create = create
        self._name = name
        self._schema = schema
        self._growth: Action | None = None
        self._key = key
        self._properties = properties or {}
        self._ordinal = key[0] if key else ""
        self._synced = -1
        self.head = Head(-1, "")
        self.id = ""
        """The id of the table. A table that was created again has another id, and its old writers refuse it."""
        self._folder = (0, 0)
        self._seen = self._folder, -1
        self.loads = 0
        """How often the whole table was read. After that, earlier knowledge may not be part of its history."""
        self._load()

    @property
    def version(self) -> int:
        return self.head.version

    def refresh(self) -> None:
        """Reads the commits that others have added. Reads the whole table if its history was replaced."""
        try:
            folder = TableFolder(self.location)
        except FileNotFoundError:
            return self._load()
        with folder:
            return self._follow(folder)

    def commit(self, files: Sequence[ParquetFile], provenance: Mapping[str, str]) -> None:
        """Adds the files in one commit after the version last seen, or raises CommitConflict. Durable on return."""
        now = int(time.time() * 1000)
        actions = commits.added(files, now, data_change=True)
        self._write("WRITE", {"mode": "Append", "partitionBy": "[]"}, files, actions, provenance, now)

    def overwrite(self, files: Sequence[ParquetFile], provenance: Mapping[str, str]) -> None:
        """Replaces all files of the table. Otherwise like `commit`."""
        if len(self.files):
            self.check_removable()
        now = int(time.time() * 1000)
        actions = [
            *commits.removed(list(self.files), now, data_change=True),
            *commits.added(files, now, data_change=True),
        ]
        self._write("WRITE", {"mode": "Overwrite", "partitionBy": "[]"}, files, actions, provenance, now)

    def replace(self, old: Sequence[LiveFile], new: ParquetFile) -> None:
        """Replaces files with one file of the same rows. Otherwise like `commit`."""
        now = int(time.time() * 1000)
        actions = [*commits.removed(old, now, data_change=False), *commits.added([new], now, data_change=False)]
        metrics = {"numRemovedFiles": len(old), "numAddedFiles": 1}
        self._write("OPTIMIZE", {}, [new], actions, {"operationMetrics": metrics}, now)

    def swap(self, old: Sequence[LiveFile], new: Sequence[ParquetFile], provenance: Mapping[str, str]) -> None:
        """Replaces files with files of fewer rows. Otherwise like `commit`."""
        self.check_removable()
        now = int(time.time() * 1000)
        actions = [*commits.removed(old, now, data_change=True), *commits.added(new, now, data_change=True)]
        self._write("DELETE", {}, new, actions, provenance, now)

    def check_removable(self) -> None:
        """Raises `TableAppendOnly` if no row may be removed. A compaction removes no rows."""
        if self._append_only:
            raise TableAppendOnly(table=self.location)

    def has(self, file: ParquetFile | LiveFile) -> bool:
        """Returns True if the table lists this file."""
        return file.path in self.files

    def discard(self, files: Sequence[ParquetFile]) -> None:
        """Removes files of a commit that failed. Keeps those that the table lists."""
        try:
            with TableFolder(self.location) as folder:
                self._follow(folder)
                for file in files if self._has_head(folder) else ():
                    if not self.has(file):
                        folder.remove(file.path)
        except (TickLakeError, DeltaError, OSError) as error:
            log.debug("Files of %s are left to vacuum: %s", self.location, one_line(error))

    def sync(self) -> None:
        """Makes all commits up to the version last seen durable. Raises CommitConflict if they are gone."""
        if self._synced >= self.version:
            return
        try:
            with TableFolder(self.location) as folder:
                self._check_head(folder)
                folder.sync(map(commits.name_of, range(self._synced + 1, self.version + 1)))
        except FileNotFoundError as error:
            raise CommitConflict from error
        except OSError as error:
            raise LakeUnwritable(directory=self.location.log, reason=error) from error
        self._synced = self.version

    def checkpoint(self) -> None:
        """Writes a checkpoint, so that the next reader need not read every commit."""
        while True:
            try:
                self.sync()
                with TableFolder(self.location) as folder:
                    return self._checkpoint(folder)
            except CommitConflict:
                self.refresh()

    def _checkpoint(self, folder: TableFolder) -> None:
        # No commit can be set aside meanwhile: the checkpoint would bring it back.
        with folder.committing():
            self._check_head(folder)
            made = scratch.checkpoint(folder, self.version)
        # Nothing can open the table or commit until the checkpoint is known to be valid.
        with folder.removing():
            self._check_head(folder)
            for name, data in made.items():
                folder.replace(name, data)
            faults.reach("lake.checkpoint.after")
            if not self._has_head(folder):  # an operator removed the commit: it must not come back
                for name in reversed(made):
                    folder.remove_log_file(name)
                raise CommitConflict
            checkpoint = made.get(checkpoints.checkpoint_name(self.version))
            self._summary(checksum_of(checkpoint) if checkpoint else "").write(folder)

    def _summary(self, checkpoint: str) -> Summary:
        return Summary(self.id, self.version, checkpoint=checkpoint, mark=self.head.digest)

    def _follow(self, folder: TableFolder) -> None:
        if not self._has_head(folder):
            return self._load()
        while (data := folder.read(commits.name_of(self.version + 1))) is not None:
            if commits.is_torn(data):
                return self._load()
            commit = self._decoded(data, self.version + 1)
            if commit.redefines or commit.info.get(commits.AFTER, self.head.digest) != self.head.digest:
                return self._load()
            if commit.adds and not all(path in self.files for path in commit.removes):
                return self._load()
            self._apply(commit)
            self.head = Head(self.version + 1, history.digest_of(data))
        if folder.has_any_after(self.version + 1):
            return self._load()
        return None

    def _decoded(self, data: bytes | None, version: int) -> Commit:
        try:
            return commits.decode_commit(data or b"", self._ordinal)
        except ValueError as error:
            raise DamagedCommit(file=str(self.location.log_file(commits.name_of(version))), reason=error) from error

    def _has_head(self, folder: TableFolder) -> bool:
        """Returns True if this folder has the commit that was seen last."""
        return folder.digest(self.version) == self.head.digest

    def _is_in_place(self) -> bool:
        try:
            with TableFolder(self.location) as folder:
                return self._has_head(folder)
        except FileNotFoundError:
            return False

    def _check_head(self, folder: TableFolder) -> None:
        if not self._has_head(folder):
            raise CommitConflict

    def _apply(self, commit: Commit) -> None:
        for path in commit.removes:
            self.files.remove(path)
        for file in commit.adds:
            self.files.add(bounded(file, self.location, self._ordinal) or file)

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
        mine = {commits.ID: uuid.uuid4().hex, commits.AFTER: self.head.digest}
        data = commits.encoded(info | dict(metadata) | mine, actions)
        # A power cut must never lose a commit and keep the one after it.
        self.sync()
        faults.reach("lake.commit.before")
        try:
            folder = TableFolder(self.location)
        except FileNotFoundError as error:
            raise CommitConflict from error
        before = self.version
        with folder:
            self._append(folder, data, files)
            faults.reach("lake.commit.after")
            self._follow(folder)
        if self.version <= before:  # an operator has removed it since
            raise CommitConflict
        self.sync()
        if self.version % _CHECKPOINT_EVERY == 0:
            self._checkpoint_if_possible()

    def _append(self, folder: TableFolder, data: bytes, files: Sequence[ParquetFile]) -> None:
        name = commits.name_of(self.version + 1)
        try:
            with folder.committing():
                self._check_head(folder)
                if folder.has_any_after(self.version + 1):
                    raise CommitConflict
                folder.require(file.path for file in files)
                folder.create(name, data)
                still_there = self._has_head(folder)
            if not still_there:
                self._withdraw(folder, name, data)
        except FileExistsError as error:
            raise CommitConflict from error
        except OSError as error:
            raise LakeUnwritable(directory=str(self.location), reason=error) from error
        # If the table was moved, the commit moved with it: it is valid there, but not part of the table here.
        if not still_there or not folder.is_here():
            raise CommitConflict

    def _withdraw(self, folder: TableFolder, name: str, data: bytes) -> None:
        """Undoes a commit whose predecessor an operator has just removed. Nothing was acknowledged."""
        while True:
            recovery.set_newest_aside_if_torn(folder)  # a torn commit after this one does not follow it
            with folder.removing():
                if commits.is_torn(folder.read(commits.name_of(self.version + 2)) or data):
                    continue
                if folder.read(name) != data or self._is_followed(folder, history.digest_of(data)):
                    return
                folder.set_aside(name)  # another engine may have begun a commit meanwhile: look again

    def _is_followed(self, folder: TableFolder, digest: str) -> bool:
        """Returns True if a later commit names this digest as its predecessor."""
        later = folder.read(commits.name_of(self.version + 2))
        if later is None:
            return folder.has_any_after(self.version + 2)
        return bool(self._decoded(later, self.version + 2).info.get(commits.AFTER, digest) == digest)

    def _checkpoint_if_possible(self) -> None:
        """Logs failures only: the commit is durable without a checkpoint, and the next one covers it."""
        try:
            self.checkpoint()
        except (DeltaError, OSError, TickLakeError) as error:
            log.warning("No checkpoint of %s at version %d: %s", self.location, self.version, one_line(error))

    def _load(self) -> None:
        """Reads the whole table, and again if it changed meanwhile."""
        # If this fails, nothing known before counts, except that these commits existed.
        if self.head.digest:
            self._seen = self._folder, self.version
        self.head = Head(-1, "")
        self.loads += 1
        first = not self.id
        while not self.head.digest:
            if first:
                self.id = ""  # somebody may have moved away the table that was just opened
            with self._open_folder() as folder:
                states = folder.states(recovery.durable_version(folder))
                try:
                    head = self._load_from(folder)
                except DeltaError as error:
                    if folder.is_here():
                        raise LakeUnreadable(table=self._name, reason=one_line(error)) from error
                    continue
                # delta-rs skips a commit that is empty because it is being copied.
                steady = all(folder.state(name) == state for name, state in states.items())
                if steady and folder.digest(head.version) == head.digest and folder.is_here():
                    self.head, self._folder = head, folder.identity()
        if self._growth is not None:
            self._grow(self._growth)

    def _grow(self, action: Action) -> None:
        """Appends the columns that a table of an older version lacks."""
        try:
            self._write("ADD COLUMNS", {}, [], [action], {}, int(time.time() * 1000))
        except CommitConflict:
            self._load()

    def _open_folder(self) -> TableFolder:
        try:
            creates = self._may_create and not self.id
            return TableFolder.open_or_create(self.location) if creates else TableFolder(self.location)
        except FileNotFoundError as error:
            if self.id and self._may_create:
                raise LakeUnreadable(table=self._name, reason=_GONE) from error
            raise

    def _load_from(self, folder: TableFolder) -> Head:
        seen = self._seen[1] if folder.identity() == self._seen[0] else -1
        recovery.recover(folder, seen)
        try:
            return self._read_table(folder)
        except TableNotFoundError as error:
            if not self._may_create:
                raise
            if self.id:
                raise LakeUnreadable(table=self._name, reason=_GONE) from error
            self._create(folder)
        except DeltaError:
            recovery.recover_all(folder, seen)
        return self._read_table(folder)

    def _read_table(self, folder: TableFolder) -> Head:
        # Nothing can be set aside meanwhile.
        with folder.committing():
            delta = opened_table(self.location)
            self._check(delta)
            self.files = Snapshot(self._bounded(live_files(delta, self._ordinal), int(delta.version())))
            self._append_only = delta.metadata().configuration.get("delta.appendOnly") == "true"
            if self._may_create and self.id not in ("", str(delta.metadata().id)):
                raise TableReplaced(table=self.location)
            self.id = str(delta.metadata().id)
            self._read(int(delta.version()))
            return Head(int(delta.version()), folder.digest(int(delta.version())) or "")

    def _bounded(self, files: Iterable[LiveFile], version: int) -> Iterator[LiveFile]:
        """Adds bounds to files from any source. A damaged file without bounds would block every tick."""
        written: dict[str, TickRange] | None = None
        for file in files:
            found = bounded(file, self.location, self._ordinal)
            if found is None:
                written = commits.written_bounds(self.location, version, self._ordinal) if written is None else written
                found = file._replace(ticks=written.get(file.path, file.ticks))
            yield found

    def _read(self, version: int) -> None:  # noqa: ARG002
        """Reads what else is needed of the table at this version."""
        self._synced = Summary.read(self.location, self.id).version

    def _check(self, delta: DeltaTable) -> None:
        self._check_properties(delta.metadata().configuration)
        check_readable(delta, self.location)
        if RUN in self._properties:
            check_run(delta, self.location, self._properties[RUN])
        version = delta.protocol().min_writer_version
        if version > _WRITER_VERSION:
            reason = f"it has Delta writer version {version}, but only versions up to {_WRITER_VERSION} are supported"
            raise UnknownTableFormat(table=self.location, reason=reason)
        nullable = {field.name for field in self._schema if field.nullable} - set(self._key)
        stored, wanted = columns_of(delta.schema(), nullable), columns_of(Schema.from_arrow(self._schema), set())
        if self._may_create:
            self._growth = growth(delta, self.location, self._schema, self._properties)
            stored += wanted[len(stored) :] if self._growth else []
        if stored != wanted:
            raise OtherTableSchema(directory=str(self.location), found=", ".join(stored), wanted=", ".join(wanted))

    def _check_properties(self, found: Mapping[str, str | None]) -> None:
        """Raises `UnknownTableFormat` if the table must not be written to."""
        version = found.get("ticklake.format", FORMAT)
        if version != FORMAT:
            reason = f"it has format {version!r}, but only {FORMAT!r} is supported"
            raise UnknownTableFormat(table=self.location, reason=reason)

    def _create(self, folder: TableFolder) -> None:
        if folder.versions() or folder.newest_checkpoint() >= 0:
            return
        # The log records where rows came from and which ticks have none, so it must be kept.
        configuration = {"ticklake.format": FORMAT, "delta.logRetentionDuration": "interval 3650 days"}
        if self._key:
            configuration[KEY] = json.dumps(list(self._key))
            configuration.update(statistics_property(self._schema, self._ordinal))
        configuration.update(self._properties)
        data = scratch.first_commit(self._name, self._schema, configuration)
        try:
            # Another indexer may create it at the same time.
            with folder.committing(), suppress(FileExistsError):
                folder.create(commits.name_of(0), data)
        except OSError as error:
            raise LakeUnwritable(directory=str(self.location), reason=error) from error
        faults.reach("lake.create.after")
