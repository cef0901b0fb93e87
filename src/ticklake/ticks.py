"""Ranges of ticks, inclusive at both ends as everywhere in TickLake, and arithmetic on them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from math import gcd
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class TickRange(NamedTuple):
    """The ticks from `start` to `end`, both included. Empty (and false) where it ends before it starts."""

    start: int
    end: int

    def __bool__(self) -> bool:
        return self.start <= self.end

    def __contains__(self, tick: object) -> bool:
        return isinstance(tick, int) and self.start <= tick <= self.end

    def __str__(self) -> str:
        return f"[{self.start}, {self.end}]"

    def overlaps(self, other: TickRange) -> bool:
        """Whether the two share a tick."""
        return self.start <= other.end and other.start <= self.end

    def covers(self, other: TickRange) -> bool:
        """Whether all of `other` is in it."""
        return self.start <= other.start and other.end <= self.end

    def within(self, other: TickRange | None) -> TickRange:
        """The part of it that is in `other`, which may be empty; all of it where there is no other."""
        return self if other is None else TickRange(max(self.start, other.start), min(self.end, other.end))

    def count(self, step: int = 1) -> int:
        """How many ticks it holds when every `step`-th is sampled, the first one included."""
        return (self.end - self.start) // step + 1 if self else 0


def split(gap: TickRange, found: TickRange, step: int) -> list[TickRange]:
    """What is left of a gap once `found` is there: nothing, one piece or two."""
    if not gap.overlaps(found):
        return [gap]
    pieces = (TickRange(gap.start, found.start - step), TickRange(found.end + step, gap.end))
    return [piece for piece in pieces if piece]


def subtract(ranges: Iterable[TickRange], covered: Iterable[TickRange], step: int) -> list[TickRange]:
    """The ticks of `ranges` that are in none of `covered`, in order."""
    cuts = merged(covered, step)
    ends = [cut.end for cut in cuts]
    rest: list[TickRange] = []
    for whole in merged(ranges, step):
        piece = whole
        for cut in cuts[bisect_right(ends, whole.start - 1) :]:
            if not piece or cut.start > piece.end:
                break
            before, piece = TickRange(piece.start, cut.start - step), TickRange(cut.end + step, piece.end)
            rest += [before] if before else []
        rest += [piece] if piece else []
    return rest


def common(ranges: Sequence[TickRange], others: Sequence[TickRange], step: int) -> list[TickRange]:
    """The ticks that are in both."""
    return subtract(ranges, subtract(ranges, others, step), step)


def merged(ranges: Iterable[TickRange], step: int) -> list[TickRange]:
    """The same ticks in as few ranges as possible, in order; empty ranges vanish."""
    result: list[TickRange] = []
    for one in sorted(one for one in ranges if one):
        if result and one.start <= result[-1].end + step:
            result[-1] = TickRange(result[-1].start, max(result[-1].end, one.end))
        else:
            result.append(one)
    return result


def hull(ranges: Sequence[TickRange]) -> TickRange:
    """From the first to the last tick of ranges that are in order."""
    return TickRange(ranges[0].start, ranges[-1].end)


def on_grid(ticks: TickRange, step: int) -> TickRange:
    """The sampled ticks of a range: its bounds moved inwards to multiples of the sampling interval."""
    return TickRange(-(-ticks.start // step) * step, ticks.end // step * step)


def even_on_grid(first: int, last: int, every: int, step: int) -> list[TickRange]:
    """The sampled ticks among every so-many-th tick from `first` to `last`, as ranges of them."""
    shared = gcd(every, step)
    if first % shared:
        return []
    # The first sampled one is so many further: the least that makes first + further * every a multiple of step.
    further = -first // shared * pow(every // shared, -1, step // shared) % (step // shared)
    start, period = first + further * every, every // shared * step
    if period == step:
        whole = on_grid(TickRange(start, last), step)
        return [whole] if whole else []
    return [TickRange(at, at) for at in range(start, last + 1, period)]


def ranges_of(ticks: npt.NDArray[np.int64], step: int) -> list[TickRange]:
    """Ascending ticks as ranges: a new one wherever more than the sampling interval lies between two."""
    import numpy as np

    if not len(ticks):
        return []
    breaks = np.flatnonzero(np.diff(ticks) > step)
    starts, ends = ticks[np.append(0, breaks + 1)], ticks[np.append(breaks, len(ticks) - 1)]
    return [TickRange(first, last) for first, last in zip(starts.tolist(), ends.tolist(), strict=True)]


def count(ranges: Iterable[TickRange], step: int) -> int:
    return sum(one.count(step) for one in ranges)
