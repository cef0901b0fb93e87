"""One read for many tables: what several flushes want of the same ticks of the same files is read together."""

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
    """What one table wants of a job."""

    work: Work
    pieces: Sequence[Piece]


class Common(NamedTuple):
    """Ticks of one file, and who wants them: the place of each request, and the piece of it that they are in."""

    slice: Slice
    wanted: list[tuple[int, Piece]]


def common_slices(requests: Sequence[Request]) -> list[Common]:
    """All that is wanted, cut so that whoever wants a part of a slice wants all of it."""
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
        takers = [(place, piece) for place, piece in wanted if ticks.within(piece.slice.ticks) == ticks]
        if takers:
            skip = frozenset.intersection(*(piece.slice.skip for _, piece in takers))
            found.append(Common(replace(wanted[0][1].slice, ticks=ticks, skip=skip), takers))
    return found


def index_together(works: Sequence[Work], number: int, commons: Sequence[Common]) -> list[tuple[int, Result]]:
    """Indexes for every request what its task gets, each into files of its own: what befalls one leaves the others."""
    tables = [_Table(place, work, number) for place, work in enumerate(works)]
    for common in commons:
        takers = [
            _Taker(tables[place], piece._replace(slice=replace(piece.slice, ticks=common.slice.ticks)))
            for place, piece in common.wanted
            if tables[place].trouble is None
        ]
        if len(takers) < 2 or not _alike(takers) or not _read_once(takers, common.slice):
            for table, piece in takers:
                table.index_alone(piece)
    return [(table.place, result) for table in tables for result in table.finish()]


class _Table:
    """One request at work in one task."""

    def __init__(self, place: int, work: Work, number: int) -> None:
        self.place, self.work = place, work
        self.files = Files(work, number)
        self.results: list[Result] = []
        self.trouble: LakeUnwritable | StorageUnavailable | None = None
        self._columns = list(dict.fromkeys(path.partition(".")[0] for path in ("tick_number", *work.reads)))

    def index_alone(self, piece: Piece) -> None:
        if self.trouble is not None:
            return
        try:
            self.results.append(task.index_piece(self.work, piece, self.files))
        except (LakeUnwritable, StorageUnavailable) as trouble:
            self.trouble = trouble

    def settle(self, account: Account) -> None:
        if self.trouble is not None:
            return
        try:
            self.results.append(account.settle())
        except LakeUnwritable as trouble:
            self.trouble = trouble

    def own(self, batch: pa.RecordBatch, skip: frozenset[int]) -> pa.RecordBatch:
        """What this table reads of a batch, less the ticks that it has already."""
        batch = batch.select(self._columns)
        if not skip:
            return batch
        return batch.filter(pa.array(~np.isin(batch.column("tick_number").to_numpy(), list(skip))))

    def finish(self) -> list[Result]:
        try:
            if self.trouble is None:
                return [*self.results, *self.files.finish()]
        except LakeUnwritable as trouble:
            self.trouble = trouble
        self.files.discard()
        assert self.trouble is not None  # noqa: S101
        return [Unavailable(self.trouble)]


class _Taker(NamedTuple):
    """A table, and the piece that it wants of what is read."""

    table: _Table
    piece: Piece


def _alike(takers: Sequence[_Taker]) -> bool:
    """Whether they read the same storage in the same way."""
    ways = {(table.work.storage and table.work.storage.url, table.work.world, table.work.read) for table, _ in takers}
    return len(ways) == 1 and takers[0].table.work.read is None


def _read_once(takers: Sequence[_Taker], common: Slice) -> bool:
    """Whether all of it could be read, and every table took it. If not, nothing of it is anywhere."""
    reads = tuple(dict.fromkeys(path for table, _ in takers for path in table.work.reads))
    accounts = [Account(table.work, piece, table.files) for table, piece in takers]
    try:
        for batch in task.read(replace(takers[0].table.work, reads=reads), common):
            for (table, piece), account in zip(takers, accounts, strict=True):
                own = table.own(batch, piece.slice.skip - common.skip)
                account.take(task.decoded(table.work, piece.slice.source, own))
    except Exception:
        # Whatever it was, and whoever is to blame: each table finds out for itself.
        for account in accounts:
            account.abandon()
        return False
    for (table, _), account in zip(takers, accounts, strict=True):
        table.settle(account)
    return True
