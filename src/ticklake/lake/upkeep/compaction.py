"""Compaction: merges small neighbouring files of a table into one large file, in one commit that changes no row.

Indexing continues meanwhile. Rows appended in between do not matter. If one of the files was removed, for example by
another compaction, the merged file is discarded.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from ticklake import faults
from ticklake.lake.delta import (
    ANY_TICK,
    CommitConflict,
    LiveFile,
    ParquetFile,
    ParquetFileWriter,
    footer_of,
    is_damage,
    one_line,
)
from ticklake.lake.errors import CompactionChangedRows, TableUnreadable
from ticklake.lake.ledger import Ledger
from ticklake.lake.upkeep.merging import merged


@dataclass(frozen=True)
class Policy:
    """Which files to merge. The defaults are for background work, which should rewrite a row only a few times."""

    full_bytes: int = 32 << 20
    """The largest size of a merged file. A file of at least half this size is final: it is not merged again."""
    fan_in: int = 8
    """The least number of files to merge, unless fewer make a final file."""
    growth: int = 4
    """A file is rewritten only into a file this many times larger, or into a final file."""


BY_HAND = Policy(fan_in=2, growth=1)
"""Merges into as few files as possible."""


@dataclass(frozen=True)
class Compacted:
    """The changes made by one step."""

    files_removed: int = 0
    files_added: int = 0
    bytes_removed: int = 0
    bytes_added: int = 0

    def __add__(self, other: Compacted) -> Compacted:
        return Compacted(*(mine + theirs for mine, theirs in zip(_values(self), _values(other), strict=True)))


def plan(files: Iterable[LiveFile], policy: Policy) -> list[list[LiveFile]]:
    """Returns the groups of neighbouring files, in tick order, that should each be merged."""
    known = sorted((file for file in files if file.ticks != ANY_TICK), key=lambda file: (file.ticks, file.path))
    return [
        group
        for small, neighbours in groupby(known, key=lambda file: 2 * file.size < policy.full_bytes)
        if small
        for part in _cut(list(neighbours), policy.full_bytes)
        for group in _worthwhile(part, policy)
    ]


class Compaction:
    """Compaction of one table. Several may work on the same table at once."""

    def __init__(self, ledger: Ledger, policy: Policy = Policy()) -> None:  # noqa: B008
        self._ledger = ledger
        self._policy = policy

    def steps(self) -> Iterator[Compacted]:
        """Merges one group after the other until none is left."""
        self._ledger.refresh()
        # Every merge leaves fewer files, so this ends. Groups that another compaction has changed are planned again.
        while groups := plan(self._ledger.files, self._policy):
            for group in groups:
                if all(map(self._ledger.has, group)):
                    yield self._merge(group)
            self._ledger.refresh()

    def waiting(self) -> int:
        """Returns the number of files that the next steps would merge."""
        self._ledger.refresh()
        return sum(map(len, plan(self._ledger.files, self._policy)))

    def _merge(self, group: Sequence[LiveFile]) -> Compacted:
        file = self._write(group)
        faults.reach("lake.compaction.written")
        if not self._swap(group, file):
            self._ledger.discard([file])
            return Compacted()
        faults.reach("lake.compaction.committed")
        return Compacted(len(group), 1, sum(one.size for one in group), file.size)

    def _swap(self, group: Sequence[LiveFile], file: ParquetFile) -> bool:
        """Replaces the group in the table. Returns False if a file of the group is no longer in it."""
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
        location, table = self._ledger.location, self._ledger.table
        files = [location.file(file.path) for file in group]
        writer = ParquetFileWriter(location, f"{uuid.uuid4().hex}-compacted.parquet", table)
        try:
            for rows in merged(files, table):
                writer.append(rows)
                faults.reach("lake.compaction.writing")
            file = writer.close()
            expected = sum(footer_of(one).num_rows for one in files)
            if file is None or file.rows != expected:
                raise CompactionChangedRows(table=table.name, expected=expected, found=file.rows if file else 0)
        except BaseException as error:
            writer.discard()
            if is_damage(error):
                raise TableUnreadable(table=location, reason=one_line(error)) from error
            raise
        return file


def _cut(files: Sequence[LiveFile], full: int) -> Iterator[list[LiveFile]]:
    """Yields groups of neighbours with at most `full` bytes together."""
    group: list[LiveFile] = []
    size = 0
    for file in files:
        if group and size + file.size > full:
            yield group
            group, size = [], 0
        group.append(file)
        size += file.size
    yield group


def _worthwhile(group: Sequence[LiveFile], policy: Policy) -> Iterator[list[LiveFile]]:
    """Yields the group, or, if its largest file is too large for `growth`, the groups on both sides of that file."""
    sizes = [file.size for file in group]
    final = 2 * sum(sizes) >= policy.full_bytes
    if len(group) < 2 or (len(group) < policy.fan_in and not final):
        return
    if final or max(sizes) * policy.growth <= sum(sizes):
        yield list(group)
        return
    largest = sizes.index(max(sizes))
    yield from _worthwhile(group[:largest], policy)
    yield from _worthwhile(group[largest + 1 :], policy)


def _values(compacted: Compacted) -> tuple[int, ...]:
    return tuple(vars(compacted).values())
