"""One read for many tables: ticks that several flushes want from the same file are read once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ticklake.lake.errors import LakeUnwritable, StorageUnavailable
from ticklake.lake.flush import task
from ticklake.lake.flush.task import Account, Files, Result, Unavailable, Work
from ticklake.lake.slices import Piece, Slice
from ticklake.ticks import TickRange


class Request(NamedTuple):
    """The pieces that one table wants from a job."""

    work: Work
    pieces: Sequence[Piece]


class Common(NamedTuple):
    """Ticks of one file, and who wants them: the position of each request, and its piece with these ticks."""

    slice: Slice
    wanted: list[tuple[int, Piece]]


def common_slices(requests: Sequence[Request]) -> list[Common]:
    """Returns all wanted slices, cut so that each request wants a slice completely or not at all."""
    files: dict[str, list[tuple[int, Piece]]] = {}
    for place, request in enumerate(requests):
        for piece in request.pieces:
            files.setdefault(piece.slice.source.key, []).append((place, piece))
    return [common for wanted in files.values() for common in _cut(wanted)]


def _cut(wanted: Sequence[tuple[int, Piece]]) -> list[Common]:
    ranges = [piece.slice.ticks for _, piece in wanted]
    edges = sorted({tick for ticks in ranges for tick in (ticks.start, ticks.end + 1)})
    found = []
    for start, stop in pairwise(edges):
        ticks = TickRange(start, stop - 1)
        targets = [(place, piece) for place, piece in wanted if ticks.within(piece.slice.ticks) == ticks]
        if targets:
            skip = frozenset.intersection(*(piece.slice.skip for _, piece in targets))
            found.append(Common(replace(wanted[0][1].slice, ticks=ticks, skip=skip), targets))
    return found


def index_together(works: Sequence[Work], number: int, commons: Sequence[Common]) -> list[tuple[int, Result]]:
    """Indexes the slices of one task for every request, each into its own files. A failure affects only one request."""
    tables = [_Table(place, work, number) for place, work in enumerate(works)]
    for common in commons:
        targets = [
            _Target(tables[place], piece._replace(slice=replace(piece.slice, ticks=common.slice.ticks)))
            for place, piece in common.wanted
            if tables[place].error is None
        ]
        if len(targets) < 2 or not _alike(targets) or not _read_once(targets, common.slice):
            for table, piece in targets:
                table.index_alone(piece)
    return [(table.place, result) for table in tables for result in table.finish()]


class _Table:
    """One request in one task: its table, files and results."""

    def __init__(self, place: int, work: Work, number: int) -> None:
        self.place, self.work = place, work
        self.files = Files(work, number)
        self.results: list[Result] = []
        self.error: LakeUnwritable | StorageUnavailable | None = None
        self._columns = list(dict.fromkeys(path.partition(".")[0] for path in ("tick_number", *work.reads)))

    def index_alone(self, piece: Piece) -> None:
        if self.error is not None:
            return
        try:
            self.results.append(task.index_piece(self.work, piece, self.files))
        except (LakeUnwritable, StorageUnavailable) as error:
            self.error = error

    def finish_piece(self, account: Account) -> None:
        if self.error is not None:
            return
        try:
            self.results.append(account.finish())
        except LakeUnwritable as error:
            self.error = error

    def own(self, batch: pa.RecordBatch, skip: frozenset[int]) -> pa.RecordBatch:
        """Returns the columns of a batch that this table reads, without the ticks that it already has."""
        batch = batch.select(self._columns)
        if not skip:
            return batch
        return batch.filter(pa.array(~np.isin(batch.column("tick_number").to_numpy(), list(skip))))

    def finish(self) -> list[Result]:
        try:
            if self.error is None:
                return [*self.results, *self.files.finish()]
        except LakeUnwritable as error:
            self.error = error
        self.files.discard()
        assert self.error is not None  # noqa: S101
        return [Unavailable(self.error)]


class _Target(NamedTuple):
    """A table, and its piece of the common slice."""

    table: _Table
    piece: Piece


def _alike(targets: Sequence[_Target]) -> bool:
    """Returns True if all read the same storage in the same way."""
    ways = {(table.work.storage and table.work.storage.url, table.work.world, table.work.read) for table, _ in targets}
    return len(ways) == 1 and targets[0].table.work.read is None


def _read_once(targets: Sequence[_Target], common: Slice) -> bool:
    """Reads a slice once for all targets. Returns False and writes nothing if it fails for any of them."""
    reads = tuple(dict.fromkeys(path for table, _ in targets for path in table.work.reads))
    accounts = [Account(table.work, piece, table.files) for table, piece in targets]
    try:
        for batch in task.read(replace(targets[0].table.work, reads=reads), common):
            for (table, piece), account in zip(targets, accounts, strict=True):
                own = table.own(batch, piece.slice.skip - common.skip)
                account.add(task.decoded(table.work, piece.slice.source, own))
    except Exception:
        # Any table may be the cause. Each one is indexed alone to find out.
        for account in accounts:
            account.abandon()
        return False
    for (table, _), account in zip(targets, accounts, strict=True):
        table.finish_piece(account)
    return True
