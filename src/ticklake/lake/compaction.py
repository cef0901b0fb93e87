"""Compaction: small neighbouring files of a table become one large file, in one commit that changes no row.

Indexing goes on meanwhile. What was appended in between does not matter; if anybody has removed one of the files, such
as another compaction, the merged file is thrown away.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa
import pyarrow.parquet as pq

from ticklake import faults
from ticklake.errors import CompactionChangedRows, TableUnreadable
from ticklake.lake.ledger import Ledger
from ticklake.lake.log import CommitConflict
from ticklake.lake.merging import merged
from ticklake.lake.parquet import ParquetFile, ParquetFileWriter
from ticklake.lake.snapshot import ANY_TICK, LiveFile


@dataclass(frozen=True)
class Policy:
    """Which files to merge: in the background when `fan_in` neighbours are alike, so that a row is rewritten seldom."""

    full_bytes: int = 32 << 20
    """A file of half this size is left alone; nothing larger is made."""
    fan_in: int = 8
    alike_bytes: int = 64 << 10
    """Files up to this size count as alike; then up to eight times this, and so on."""
    lopsided: bool = False
    """Whether to rewrite a file for the sake of less than its own size."""


BY_HAND = Policy(fan_in=2, alike_bytes=32 << 20, lopsided=True)
"""As few files as possible, at once."""


@dataclass(frozen=True)
class Compacted:
    """What one step did."""

    files_removed: int = 0
    files_added: int = 0
    bytes_removed: int = 0
    bytes_added: int = 0

    def __add__(self, other: Compacted) -> Compacted:
        return Compacted(*(mine + theirs for mine, theirs in zip(_values(self), _values(other), strict=True)))


def plan(files: Sequence[LiveFile], policy: Policy) -> list[list[LiveFile]]:
    """The groups of neighbouring files, in tick order, that should each become one. The smallest files come first."""
    known = sorted((file for file in files if file.ticks != ANY_TICK), key=lambda file: (file.ticks, file.path))
    for ceiling in _ceilings(policy):
        groups = [
            group
            for small, run in groupby(known, key=lambda file: file.size < ceiling)
            if small and len(alike := list(run)) >= policy.fan_in
            for group in _cut(alike, policy.full_bytes)
            if _is_worth_it(group, policy)
        ]
        if groups:
            return groups
    return []


class Compaction:
    """Compaction of one table, any number of which may be at work at once."""

    def __init__(self, ledger: Ledger, policy: Policy = Policy()) -> None:  # noqa: B008
        self._ledger = ledger
        self._policy = policy

    def steps(self) -> Iterator[Compacted]:
        """Merges one group after the other until no more is worth it."""
        self._ledger.refresh()
        # Fewer files after every merge, so this ends; groups that were lost to another are planned anew.
        while groups := plan(list(self._ledger.files), self._policy):
            for group in groups:
                if all(map(self._ledger.has, group)):
                    yield self._merge(group)
            self._ledger.refresh()

    def waiting(self) -> int:
        """How many files the next steps would merge."""
        self._ledger.refresh()
        return sum(map(len, plan(list(self._ledger.files), self._policy)))

    def _merge(self, group: Sequence[LiveFile]) -> Compacted:
        file = self._write(group)
        faults.reach("lake.compaction.written")
        if not self._swap(group, file):
            (self._ledger.directory / file.path).unlink(missing_ok=True)
            return Compacted()
        faults.reach("lake.compaction.committed")
        return Compacted(len(group), 1, sum(one.size for one in group), file.size)

    def _swap(self, group: Sequence[LiveFile], file: ParquetFile) -> bool:
        """False where the group is no longer what the table consists of."""
        while True:
            try:
                self._ledger.replace(group, file)
                return True
            except CommitConflict:
                self._ledger.refresh()
                if self._ledger.has(file):
                    return True
                if not all(map(self._ledger.has, group)):
                    return False

    def _write(self, group: Sequence[LiveFile]) -> ParquetFile:
        directory, table = self._ledger.directory, self._ledger.table
        paths = [directory / file.path for file in group]
        writer = ParquetFileWriter(directory, f"{uuid.uuid4().hex}-compacted.parquet", table)
        try:
            for rows in merged(paths, table):
                writer.append(rows)
                faults.reach("lake.compaction.writing")
            file = writer.close()
            expected = sum(pq.read_metadata(path).num_rows for path in paths)
            if file is None or file.rows != expected:
                raise CompactionChangedRows(table=table.name, expected=expected, found=file.rows if file else 0)
        except BaseException as error:
            writer.discard()
            if isinstance(error, pa.ArrowInvalid):
                raise TableUnreadable(table=directory, reason=error) from error
            raise
        return file


def _ceilings(policy: Policy) -> Iterator[int]:
    half = policy.full_bytes // 2
    ceiling = policy.alike_bytes
    while ceiling < half:
        yield ceiling
        ceiling *= 8
    yield half


def _cut(files: Sequence[LiveFile], full: int) -> Iterator[list[LiveFile]]:
    """Neighbours in groups that make a file of at most `full` bytes."""
    group: list[LiveFile] = []
    size = 0
    for file in files:
        if group and size + file.size > full:
            yield group
            group, size = [], 0
        group.append(file)
        size += file.size
    yield group


def _is_worth_it(group: Sequence[LiveFile], policy: Policy) -> bool:
    sizes = [file.size for file in group]
    return len(group) > 1 and (policy.lopsided or 2 * max(sizes) <= sum(sizes))


def _values(compacted: Compacted) -> tuple[int, ...]:
    return tuple(vars(compacted).values())
