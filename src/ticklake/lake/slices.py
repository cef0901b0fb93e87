"""Slices: tick ranges of batch files, and how a flush distributes them over its tasks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from ticklake.ticks import Stretch, TickRange


class Source(Protocol):
    """What a slice is a part of: a batch file, or a batch of an event queue.

    `ticks` are the numbers that it holds: tick numbers, or numbers of event batches.
    """

    @property
    def key(self) -> str: ...

    @property
    def ticks(self) -> TickRange: ...

    @property
    def size(self) -> int: ...

    def provenance(self, first: int, last: int) -> dict[str, object]:
        """Returns how a commit records this source and the ticks that it added from it."""


@dataclass(frozen=True)
class Slice:
    """The ticks of one source that a task indexes, without those the table already has."""

    source: Source
    ticks: TickRange
    skip: frozenset[int] = frozenset()
    whole: TickRange | None = None
    """The ticks of the file that must all be valid before this slice is committed. None if they were checked before."""
    message_id: str = ""
    claim_version: int = 0

    def without(self, present: Collection[int]) -> Slice:
        return replace(self, skip=frozenset(tick for tick in present if tick in self.ticks))

    def done(self, step: int, stretches: Sequence[Stretch] = ()) -> bool:
        """Returns True if the table has every tick of this slice. A file that starts off the grid is never done.

        `stretches` say which ticks the source has; by default every `step`-th.
        """
        if stretches:
            return all(tick in self.skip for one in stretches for tick in one.within(self.ticks))
        first = self.ticks.start + -self.ticks.start % step
        good = self.source.ticks.start % step == 0
        return good and all(tick in self.skip for tick in range(first, self.ticks.end + 1, step))

    def rest(self) -> list[Slice]:
        """Returns the other ticks that must be valid: those before this slice and those after it."""
        if self.whole is None:
            return []
        before = TickRange(self.whole.start, self.ticks.start - 1)
        after = TickRange(self.ticks.end + 1, self.whole.end)
        return [replace(self, ticks=ticks, skip=frozenset(), whole=None) for ticks in (before, after) if ticks]

    def skipped(self) -> list[Slice]:
        """Returns the ticks that must be valid although the table has them, as one range."""
        if self.whole is None or not self.skip:
            return []
        return [replace(self, ticks=TickRange(min(self.skip), max(self.skip)), skip=frozenset(), whole=None)]

    def weight(self) -> float:
        """Returns its share of the bytes of the file."""
        return max(self.source.size, 1) * self.ticks.count() / self.source.ticks.count()

    def cut(self, ticks: int, step: int) -> tuple[Slice, Slice]:
        """Returns its first `ticks` sampled ticks, and the rest."""
        last = self.ticks.start + ticks * step - 1
        head, tail = TickRange(self.ticks.start, last), TickRange(last + 1, self.ticks.end)
        return replace(self, ticks=head), replace(self, ticks=tail)


class Piece(NamedTuple):
    """The part of slice `number` of a flush that one task gets. A check writes no rows."""

    number: int
    slice: Slice
    check: bool = False


def spread(slices: Sequence[Slice], tasks: int, step: int) -> list[list[Piece]]:
    """Distributes slices over at most `tasks` tasks in equal shares of bytes, in order. Cuts slices if necessary.

    Share n ends at the tick nearest to n shares of all bytes, so rounding errors do not add up.
    """
    share = sum(slice_.weight() for slice_ in slices) / max(tasks, 1)
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
