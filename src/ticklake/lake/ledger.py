"""The ledger of a table: which ticks it has. The Delta log is the only record, so nothing can disagree with it."""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ticklake import faults
from ticklake.lake.delta import (
    INDEXER,
    Commit,
    CommitConflict,
    DeltaError,
    DeltaLog,
    DeltaTable,
    LiveFile,
    ParquetFile,
    ParquetFileWriter,
    Summary,
    added_ticks,
    column_of,
    conformed,
    is_damage,
    live_files,
    name_of,
    named_key,
    one_line,
    opened,
    read_commit,
    recorded,
    row_groups,
)
from ticklake.lake.empty import REMOVED, joined, ticks_of
from ticklake.lake.errors import DamagedCommit, DamagedFileOfTable, DamagedTableFile, DamageNotCovered, StaleRewrite
from ticklake.lake.order import beginnings
from ticklake.lake.table import Table
from ticklake.ticks import TickRange

Ticks = npt.NDArray[np.int64]

# Operations whose rows are not those of the files that they remove: older ones, or given ones.
_NOT_FROM_THE_FILES_BEFORE = ("RESTORE", "WRITE", "CREATE", "REPLACE")


@dataclass(frozen=True)
class Removal:
    """What is to be removed from a table: ranges of ticks, and damaged files. `stay` are the ticks between them."""

    ranges: list[TickRange]
    damaged: list[LiveFile]
    stay: Ticks


class Ledger(DeltaLog):
    """A table opened for indexing."""

    def __init__(
        self, directory: Path, table: Table, *, create: bool = True, properties: Mapping[str, str] | None = None
    ) -> None:
        self.table = table
        self._indexer = ""
        super().__init__(directory, table.name, table.schema, table.key, create=create, properties=properties)

    def present(self, wanted: Sequence[TickRange]) -> Ticks:
        """The ticks of these ranges that the table has. Reads no file where no file's bounds overlap a range."""
        asked: defaultdict[LiveFile, list[TickRange]] = defaultdict(list)
        for ticks in wanted:
            for file in self.files.overlapping(ticks):
                asked[file].append(ticks)
        found = [self._empty.within(ticks) for ticks in wanted]
        for file, ranges in asked.items():
            found.extend(self._ticks_of(file, ranges))
        return joined(found)

    def remove(self, ticks: TickRange) -> None:
        """Takes these ticks out of the table, so that they can be indexed again. Older versions still have them."""
        while True:
            self.refresh()
            old = [file for file in self.files.overlapping(ticks) if self._has_any(file, ticks)]
            if not old and not len(self._empty.within(ticks)):
                return
            new = [kept for file in old if (kept := self._kept(file, ticks)) is not None]
            try:
                with faults.around("lake.delete"):
                    self.swap(old, new, {REMOVED: json.dumps(ticks)})
                return
            except CommitConflict:
                self.discard(new)

    def plan_removal(self, ticks: Ticks, within: TickRange, step: int) -> Removal:
        """How to remove these ticks of a range, and no others. Changes nothing; raises if it cannot be done.

        A damaged file of the table is removed if these are all the ticks it can hold.
        """
        self.refresh()
        self.check_removable()
        there, damaged = [self._empty.within(within)], []
        for file in self.files.overlapping(within):
            try:
                there.extend(self._ticks_of(file, [within]))
            except DamagedTableFile as error:
                if not within.covers(file.ticks):
                    raise
                if not self._comes_back(file, ticks, step):
                    raise DamageNotCovered(
                        file=error.file, first=error.first, last=error.last, reason=error.reason
                    ) from error
                damaged.append(file)
        stay = np.setdiff1d(joined(there), ticks)
        parts = np.split(ticks, np.searchsorted(ticks, stay))
        return Removal([TickRange(int(part[0]), int(part[-1])) for part in parts if len(part)], damaged, stay)

    def carry_out(self, removal: Removal) -> None:
        for file in removal.damaged:
            self._drop(file)
        for ticks in removal.ranges:
            self.remove(ticks)

    def _comes_back(self, file: LiveFile, ticks: Ticks, step: int) -> bool:
        """Whether these are all the ticks that a damaged file can hold. The log says which ticks were ever added."""
        start, end = file.ticks
        good = set(ticks[(ticks >= start) & (ticks <= end)].tolist())
        if len(good) >= file.ticks.count(step):
            return True
        added = added_ticks(self._log, self.version)
        return added is not None and all(tick in good for one in added for tick in one if start <= tick <= end)

    def _drop(self, file: LiveFile) -> None:
        """Removes a whole file, unless somebody has removed it already."""
        while file in self.files.overlapping(file.ticks):
            try:
                with faults.around("lake.delete"):
                    self.swap([file], [], {})
            except CommitConflict:
                self.refresh()

    def _ticks_of(self, file: LiveFile, wanted: Sequence[TickRange]) -> list[Ticks]:
        try:
            return list(ticks_in(self.directory / file.path, wanted, self.table.ordinal))
        except (pa.ArrowException, OSError) as error:
            if self._is_damage(error):
                raise self._damaged(file, error) from error
            raise

    def _is_damage(self, error: BaseException) -> bool:
        """Also if a file is gone, but not if the table is: then it was moved away or the lake cannot be reached."""
        return is_damage(error) or (isinstance(error, FileNotFoundError) and self._is_in_place())

    def _damaged(self, file: LiveFile, error: BaseException) -> DamagedTableFile:
        path, (first, last), reason = str(self.directory / file.path), file.ticks, one_line(error)
        if not self._indexer:
            return DamagedFileOfTable(file=path, table=self.table.name, first=first, last=last, reason=reason)
        table = self.table.name if self._indexer.startswith("ticklake.") else self._indexer
        return DamagedTableFile(file=path, table=table, first=first, last=last, reason=reason)

    def _has_any(self, file: LiveFile, ticks: TickRange) -> bool:
        """Not read where its bounds tell, so that one that is damaged can be replaced."""
        return ticks.covers(file.ticks) or any(map(len, self._ticks_of(file, [ticks])))

    def _kept(self, file: LiveFile, removed: TickRange) -> ParquetFile | None:
        """What is left of a file without these ticks, on disk before the commit that needs it: delta-rs syncs none."""
        if removed.covers(file.ticks):
            return None
        writer = ParquetFileWriter(self.directory, f"{uuid.uuid4().hex}-kept.parquet", self.table)
        tick = pc.field(self.table.ordinal)
        try:
            with opened(self.directory / file.path) as stored:
                for group in range(stored.num_row_groups):
                    rows = conformed(stored.read_row_group(group), self.table.schema)
                    for batch in rows.filter((tick < removed.start) | (tick > removed.end)).to_batches():
                        writer.append(batch)
            return writer.close()
        except BaseException as error:
            writer.discard()
            if self._is_damage(error):
                raise self._damaged(file, error) from error
            raise

    def _check_properties(self, found: Mapping[str, str | None]) -> None:
        super()._check_properties(found)
        # Who opens it knows better than the table, whose indexer may have been moved.
        self._indexer = self._properties.get(INDEXER) or found.get(INDEXER) or ""

    def _read(self, version: int) -> None:
        super()._read(version)
        self._empty, rewrites = recorded(self._log, self.id, version)
        self._check_rewrites(rewrites)

    def _check_rewrites(self, versions: Sequence[int]) -> None:
        """Raises `StaleRewrite` if rows that are still there come from a file in the place of some that were not.

        delta-rs makes such if its OPTIMIZE begins before a compaction and commits after it: then every row is there
        twice, and stays so if the file is rewritten again. So the ancestors of the files are followed back.
        """
        line = {file.path for file in self.files}
        for version in reversed(versions):
            commit = self._decoded(read_commit(self._log, version), version)
            if line.isdisjoint(file.path for file in commit.adds):
                continue
            self._check_rewrite(version, commit)
            if not str(commit.info.get("operation")).startswith(_NOT_FROM_THE_FILES_BEFORE):
                line.update(commit.removes)

    def _check_rewrite(self, version: int, commit: Commit) -> None:
        try:
            before = live_files(DeltaTable(self.directory, version=version - 1), self._ordinal)
        except DeltaError:
            # Somebody has cleaned the log up, so nobody can tell any more.
            return
        if not {file.path for file in before}.issuperset(commit.removes):
            operation = commit.info.get("operation", "unknown")
            raise StaleRewrite(table=self.directory, version=version, operation=operation, before=version - 1)

    def _take(self, commit: Commit) -> None:
        try:
            self._empty.take(commit.info)
        except ValueError as error:
            raise DamagedCommit(file=str(self._log / name_of(self.version + 1)), reason=error) from error
        super()._take(commit)

    def _summary(self, checkpoint: str) -> Summary:
        return Summary(self.id, self.version, self._empty.text(), checkpoint, self.head.mark)


def open_existing(directory: Path) -> Ledger | None:
    """The ledger of a table that is there, whatever indexer it belongs to; None for one that is not kept by ticks."""
    delta = DeltaTable(directory)
    metadata = delta.metadata()
    if not (key := named_key(delta, directory)):
        return None
    schema = pa.schema(delta.schema().to_arrow())
    table = Table(metadata.name or directory.name, schema, key)
    return Ledger(directory, table, create=False)


def ticks_in(path: Path, wanted: Sequence[TickRange], ordinal: str = "tick_number") -> Iterator[Ticks]:
    """The ticks of one Parquet file within some ranges, from the bounds of its row groups where those tell."""
    with opened(path) as file:
        for group in row_groups(file.metadata, ordinal):
            bounds = group.bounds
            ranges = [ticks for ticks in wanted if bounds is None or bounds.overlaps(ticks)]
            if not ranges or not group.has_values:
                continue
            if bounds is not None and bounds.start == bounds.end:
                yield np.array([bounds.start], np.int64)
                continue
            ticks = _distinct(column_of(file, group, ordinal))
            for within in ranges:
                yield ticks[(ticks >= within.start) & (ticks <= within.end)]


def _distinct(column: pa.ChunkedArray) -> Ticks:
    found = ticks_of(column)
    # Ours are in order: what differs from the row before is little to sort.
    return np.unique(found[beginnings(found)])
