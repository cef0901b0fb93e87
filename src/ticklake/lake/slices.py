"""Slices: tick ranges of batch files, and how a flush shares them out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from ticklake.ticks import TickRange


class Source(Protocol):
    """What a slice is of: a batch file, or a batch of an event queue.

    `ticks` are the numbers that it holds, of whatever the table counts by: ticks, or batches of events.
    """

    @property
    def key(self) -> str: ...

    @property
    def ticks(self) -> TickRange: ...

    @property
    def size(self) -> int: ...

    def claim(self, first: int, last: int) -> dict[str, object]:
        """How a commit names it and what it took of it."""


@dataclass(frozen=True)
class Slice:
    """The ticks of one source that a task is to index, less those the table has already."""

    source: Source
    ticks: TickRange
    skip: frozenset[int] = frozenset()
    whole: TickRange | None = None
    """The ticks of the file that must all be good before this slice is committed; None if it is known that they are."""
    message_id: str = ""
    claim_version: int = 0

    def without(self, present: Collection[int]) -> Slice:
        return replace(self, skip=frozenset(tick for tick in present if tick in self.ticks))

    def done(self, step: int) -> bool:
        """Whether the table has every tick that this slice can hold. A file that begins off the grid has a bad one."""
        first = self.ticks.start + -self.ticks.start % step
        good = self.source.ticks.start % step == 0
        return good and all(tick in self.skip for tick in range(first, self.ticks.end + 1, step))

    def rest(self) -> list[Slice]:
        """The other ticks that must be good: what is before this slice and what is after it."""
        if self.whole is None:
            return []
        before = TickRange(self.whole.start, self.ticks.start - 1)
        after = TickRange(self.ticks.end + 1, self.whole.end)
        return [replace(self, ticks=ticks, skip=frozenset(), whole=None) for ticks in (before, after) if ticks]

    def skipped(self) -> list[Slice]:
        """The ticks that must be good although the table has them, and what lies between them."""
        if self.whole is None or not self.skip:
            return []
        return [replace(self, ticks=TickRange(min(self.skip), max(self.skip)), skip=frozenset(), whole=None)]

    def weight(self) -> float:
        """Its share of the file's bytes."""
        return max(self.source.size, 1) * self.ticks.count() / self.source.ticks.count()

    def cut(self, ticks: int, step: int) -> tuple[Slice, Slice]:
        """Its first `ticks` sampled ticks and the rest."""
        last = self.ticks.start + ticks * step - 1
        head, tail = TickRange(self.ticks.start, last), TickRange(last + 1, self.ticks.end)
        return replace(self, ticks=head), replace(self, ticks=tail)


class Piece(NamedTuple):
    """What one task gets of one slice; `number` is the slice's place in the flush. A check writes no rows."""

    number: int
    slice: Slice
    check: bool = False


def spread(slices: Sequence[Slice], tasks: int, step: int) -> list[list[Piece]]:
    """Deals slices out to at most `tasks` tasks in equal shares of bytes, in order, cutting where a share ends.

    Share n ends where n shares of all bytes do, to the nearest tick: what one has too little is not missing at the end.
    """
    share = sum(piece.weight() for piece in slices) / max(tasks, 1)
    shares: list[list[Piece]] = [[]]
    dealt = 0.0
    for number, whole in enumerate(slices):
        rest, a_tick = whole, whole.weight() / max(whole.ticks.count(step), 1)
        while len(shares) < tasks:
            count = round((len(shares) * share - dealt) / a_tick)
            if count >= rest.ticks.count(step):
                break
            if count > 0:
                head, rest = rest.cut(count, step)
                shares[-1].append(Piece(number, head))
                dealt += count * a_tick
            shares.append([])
        shares[-1].append(Piece(number, rest))
        dealt += rest.ticks.count(step) * a_tick
    return [pieces for pieces in shares if pieces]
