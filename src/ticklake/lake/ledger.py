"""The ledger of a table: which ticks it has. It is read from the Delta log, so it always agrees with the table."""

from __future__ import annotations

import json
import logging
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ticklake import faults
from ticklake.errors import TickLakeError
from ticklake.lake.cells import ALL, CELLS, cells_in
from ticklake.lake.delta import (
    INDEXER,
    RUN,
    SCHEMA,
    Commit,
    CommitConflict,
    DeltaError,
    DeltaLog,
    LiveFile,
    Location,
    ParquetFile,
    ParquetFileWriter,
    Summary,
    TableFile,
    added_ticks,
    column_of,
    conformed,
    is_damage,
    live_files,
    name_of,
    named_key,
    one_line,
    open_of_run,
    opened,
    opened_table,
    read_commit,
    recorded,
    row_groups,
)
from ticklake.lake.empty import REMOVED, Ticks, joined, ticks_of
from ticklake.lake.errors import (
    DamagedCommit,
    DamagedFileOfTable,
    DamagedTableFile,
    DamageNotCovered,
    OtherCells,
    StaleRewrite,
)
from ticklake.lake.order import beginnings
from ticklake.lake.table import Table
from ticklake.ticks import Grid, TickRange

log = logging.getLogger(__name__)

# Operations that write other rows than those of the files that they remove.
_NOT_FROM_THE_FILES_BEFORE = ("RESTORE", "WRITE", "CREATE", "REPLACE")


@dataclass(frozen=True)
class Removal:
    """What to remove from a table: ranges of ticks, and damaged files. `stay` are the ticks between them."""

    ranges: list[TickRange]
    damaged: list[LiveFile]
    stay: Ticks


class Ledger(DeltaLog):
    """A table opened for indexing."""

    def __init__(
        self, location: Location, table: Table, *, create: bool = True, properties: Mapping[str, str] | None = None
    ) -> None:
        self.table = table
        self._indexer = ""
        own = {SCHEMA: str(table.version)} if table.version > 1 else {}
        own |= {CELLS: table.cells} if table.cells != ALL else {}
        super().__init__(
            location,
            table.name,
            table.schema,
            table.key,
            create=create,
            properties={**(properties or {}), **own},
        )

    def present(self, wanted: Sequence[TickRange]) -> Ticks:
        """Returns the ticks of these ranges that the table has. Reads only files whose bounds overlap a range."""
        asked: defaultdict[LiveFile, list[TickRange]] = defaultdict(list)
        for ticks in wanted:
            for file in self.files.overlapping(ticks):
                asked[file].append(ticks)
        found = [self._empty.within(ticks) for ticks in wanted]
        for file, ranges in asked.items():
            found.extend(self._ticks_of(file, ranges))
        return joined(found)

    def remove(self, ticks: TickRange) -> None:
        """Removes these ticks, so that they can be indexed again. Older versions still have them."""
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
        """Plans the removal of exactly these ticks of a range. Changes nothing. Raises if they cannot be removed.

        A damaged file is removed if it can hold no other ticks.
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
                if not self._is_replaceable(file, ticks, step):
                    raise DamageNotCovered(file=error.file, ticks=file.ticks, reason=error.reason) from error
                damaged.append(file)
        stay = np.setdiff1d(joined(there), ticks)
        parts = np.split(ticks, np.searchsorted(ticks, stay))
        return Removal([TickRange(int(part[0]), int(part[-1])) for part in parts if len(part)], damaged, stay)

    def carry_out(self, removal: Removal) -> None:
        for file in removal.damaged:
            self._remove_file(file)
        for ticks in removal.ranges:
            self.remove(ticks)

    def _is_replaceable(self, file: LiveFile, ticks: Ticks, step: int) -> bool:
        """Returns True if a damaged file can hold no other ticks. The log records all ticks that were ever added."""
        start, end = file.ticks
        good = set(ticks[(ticks >= start) & (ticks <= end)].tolist())
        if len(good) >= file.ticks.count(step):
            return True
        added = added_ticks(self.location, self.version)
        return added is not None and all(tick in good for one in added for tick in one if start <= tick <= end)

    def _remove_file(self, file: LiveFile) -> None:
        """Removes a whole file, unless it has been removed already."""
        while file in self.files.overlapping(file.ticks):
            try:
                with faults.around("lake.delete"):
                    self.swap([file], [], {})
            except CommitConflict:
                self.refresh()

    def _ticks_of(self, file: LiveFile, wanted: Sequence[TickRange]) -> list[Ticks]:
        try:
            return list(ticks_in(self.location.file(file.path), wanted, self.table.ordinal))
        except (pa.ArrowException, OSError) as error:
            if self._is_damage(error):
                raise self._damaged(file, error) from error
            raise

    def _is_damage(self, error: BaseException) -> bool:
        """Also True for a missing file, unless the table is missing: it was moved, or the lake cannot be reached."""
        return is_damage(error) or (isinstance(error, FileNotFoundError) and self._is_in_place())

    def _damaged(self, file: LiveFile, error: BaseException) -> DamagedTableFile:
        path, (first, last), reason = str(self.location.file(file.path)), file.ticks, one_line(error)
        if not self._indexer:
            return DamagedFileOfTable(file=path, table=self.table.name, first=first, last=last, reason=reason)
        table = self.table.name if self._indexer.startswith("ticklake.") else self._indexer
        return DamagedTableFile(file=path, table=table, first=first, last=last, reason=reason)

    def _has_any(self, file: LiveFile, ticks: TickRange) -> bool:
        """Does not read the file if its bounds are enough, so that a damaged file can be replaced."""
        return ticks.covers(file.ticks) or any(map(len, self._ticks_of(file, [ticks])))

    def _kept(self, file: LiveFile, removed: TickRange) -> ParquetFile | None:
        """Writes the rows of a file without these ticks to a new file. Durable on return; None if no row is left."""
        if removed.covers(file.ticks):
            return None
        writer = ParquetFileWriter(self.location, f"{uuid.uuid4().hex}-kept.parquet", self.table)
        tick = pc.field(self.table.ordinal)
        try:
            with opened(self.location.file(file.path)) as stored:
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
        if self._may_create:
            check_cells(found, self.table, self.location)
        # The caller's value wins, because the indexer may have moved to another module.
        self._indexer = self._properties.get(INDEXER) or found.get(INDEXER) or ""

    def _read(self, version: int) -> None:
        super()._read(version)
        self._empty, rewrites = recorded(self.location, self.id, version)
        self._check_rewrites(rewrites)

    def _check_rewrites(self, versions: Sequence[int]) -> None:
        """Raises `StaleRewrite` if live rows come from a rewrite of files that had been removed before.

        delta-rs does this if its OPTIMIZE starts before a compaction and commits after it. Then every row is there
        twice, even after later rewrites. So the ancestors of all live files are checked.
        """
        ancestors = {file.path for file in self.files}
        for version in reversed(versions):
            commit = self._decoded(read_commit(self.location, version), version)
            if ancestors.isdisjoint(file.path for file in commit.adds):
                continue
            self._check_rewrite(version, commit)
            if not str(commit.info.get("operation")).startswith(_NOT_FROM_THE_FILES_BEFORE):
                ancestors.update(commit.removes)

    def _check_rewrite(self, version: int, commit: Commit) -> None:
        try:
            before = live_files(opened_table(self.location, version - 1), self._ordinal)
        except DeltaError:
            # The log was cleaned up, so the check is no longer possible.
            return
        if not {file.path for file in before}.issuperset(commit.removes):
            operation = commit.info.get("operation", "unknown")
            raise StaleRewrite(table=self.location, version=version, operation=operation, before=version - 1)

    def _apply(self, commit: Commit) -> None:
        try:
            self._empty.apply(commit.info)
        except ValueError as error:
            raise DamagedCommit(file=str(self.location.log_file(name_of(self.version + 1))), reason=error) from error
        super()._apply(commit)

    def _summary(self, checkpoint: str) -> Summary:
        return Summary(self.id, self.version, self._empty.text(), checkpoint, self.head.digest)


def check_cells(found: Mapping[str, str | None], table: Table, location: Location) -> None:
    """Raises `OtherCells` if a table has cells of other ticks than its indexer would add."""
    if cells_in(found) != table.cells:
        raise OtherCells(table=location, found=cells_in(found), wanted=table.cells)


def open_existing(location: Location, run_id: str) -> Ledger | None:
    """Returns the ledger of an existing table of any indexer, or None if the table has no key.

    Raises `TableOfAnotherRun` if the table belongs to another run, also if it takes the place of this one later.
    """
    delta = open_of_run(location, run_id)
    metadata = delta.metadata()
    if not (key := named_key(delta, location)):
        return None
    schema = pa.schema(delta.schema().to_arrow())
    table = Table(metadata.name or location.name, schema, key)
    return Ledger(location, table, create=False, properties={RUN: run_id})


def lacking(location: Location, run_id: str, wanted: Sequence[TickRange], grid: Grid) -> list[TickRange]:
    """Returns the recorded ticks of these ranges that a table lacks: all if it cannot be read."""
    try:
        ledger = open_existing(location, run_id)
        present = ledger.present(wanted) if ledger else np.empty(0, np.int64)
        return grid.subtract(wanted, grid.ranges_of(present[grid.has(present)]))
    except (TickLakeError, DeltaError, OSError) as error:
        log.debug("Table %s cannot be read: %s", location, error)
        return list(wanted)


def ticks_in(file: TableFile, wanted: Sequence[TickRange], ordinal: str = "tick_number") -> Iterator[Ticks]:
    """Yields the ticks of a Parquet file within some ranges. Reads a row group only if its bounds are not enough."""
    with opened(file) as stored:
        for group in row_groups(stored.metadata, ordinal):
            bounds = group.bounds
            ranges = [ticks for ticks in wanted if bounds is None or bounds.overlaps(ticks)]
            if not ranges or not group.has_values:
                continue
            if bounds is not None and bounds.start == bounds.end:
                yield np.array([bounds.start], np.int64)
                continue
            ticks = _distinct(column_of(stored, group, ordinal))
            for within in ranges:
                yield ticks[(ticks >= within.start) & (ticks <= within.end)]


def _distinct(column: pa.ChunkedArray) -> Ticks:
    found = ticks_of(column)
    # Our files are sorted, so few values differ from the one before and little is left to sort.
    return np.unique(found[beginnings(found)])
