"""Ranges of ticks and arithmetic on them. Both ends are included, as everywhere in TickLake."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from math import gcd
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class TickRange(NamedTuple):
    """The ticks from `start` to `end`, both included. It is empty (and false) if it ends before it starts."""

    start: int
    end: int

    def __bool__(self) -> bool:
        return self.start <= self.end

    def __contains__(self, tick: object) -> bool:
        return isinstance(tick, int) and self.start <= tick <= self.end

    def __str__(self) -> str:
        """Formats the range for people: `0–1,999`, one tick as `5`, an empty range as `none`."""
        if not self:
            return "none"
        return f"{self.start:,}" if self.start == self.end else f"{self.start:,}–{self.end:,}"

    def overlaps(self, other: TickRange) -> bool:
        """Returns True if the two ranges share a tick."""
        return self.start <= other.end and other.start <= self.end

    def covers(self, other: TickRange) -> bool:
        """Returns True if every tick of `other` is in this range."""
        return self.start <= other.start and other.end <= self.end

    def within(self, other: TickRange | None) -> TickRange:
        """Returns the part of this range that is in `other`, which may be empty. None stands for all ticks."""
        return self if other is None else TickRange(max(self.start, other.start), min(self.end, other.end))

    def count(self, step: int = 1) -> int:
        """Returns the number of ticks if every `step`-th is sampled, starting with the first."""
        return (self.end - self.start) // step + 1 if self else 0


def split(gap: TickRange, found: TickRange, step: int) -> list[TickRange]:
    """Returns what is left of a gap without `found`: no piece, one or two."""
    if not gap.overlaps(found):
        return [gap]
    pieces = (TickRange(gap.start, found.start - step), TickRange(found.end + step, gap.end))
    return [piece for piece in pieces if piece]


def subtract(ranges: Iterable[TickRange], covered: Iterable[TickRange], step: int) -> list[TickRange]:
    """Returns the sampled ticks of `ranges` that are not in `covered`, in order."""
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
    """Returns the sampled ticks that are in both."""
    return subtract(ranges, subtract(ranges, others, step), step)


def merged(ranges: Iterable[TickRange], step: int) -> list[TickRange]:
    """Returns the sampled ticks in as few ranges as possible, in order. Ranges without sampled ticks are left out.

    Ranges may come from another sampling interval. They are put on the grid before they are joined: 1–9 and
    11–19 have no sampled tick if every 10th is sampled, so they are not neighbours.
    """
    result: list[TickRange] = []
    for one in sorted(sampled for one in ranges if (sampled := on_grid(one, step))):
        if result and one.start <= result[-1].end + step:
            result[-1] = TickRange(result[-1].start, max(result[-1].end, one.end))
        else:
            result.append(one)
    return result


def hull(ranges: Sequence[TickRange]) -> TickRange:
    """Returns the range from the first to the last tick of ranges that are in order."""
    return TickRange(ranges[0].start, ranges[-1].end)


def on_grid(ticks: TickRange, step: int) -> TickRange:
    """Returns the sampled ticks of a range: its bounds move inwards to multiples of the sampling interval."""
    return TickRange(-(-ticks.start // step) * step, ticks.end // step * step)


def even_on_grid(first: int, last: int, every: int, step: int) -> list[TickRange]:
    """Returns the sampled ticks among `first`, `first + every`, … up to `last`, as ranges."""
    shared = gcd(every, step)
    if first % shared:
        return []
    # The least `further` for which first + further * every is a multiple of step.
    further = -first // shared * pow(every // shared, -1, step // shared) % (step // shared)
    start, period = first + further * every, every // shared * step
    if period == step:
        whole = on_grid(TickRange(start, last), step)
        return [whole] if whole else []
    return [TickRange(at, at) for at in range(start, last + 1, period)]


def ranges_of(ticks: npt.NDArray[np.int64], step: int) -> list[TickRange]:
    """Returns ascending ticks as ranges. A new range starts after each gap of more than the sampling interval."""
    import numpy as np

    if not len(ticks):
        return []
    breaks = np.flatnonzero(np.diff(ticks) > step)
    starts, ends = ticks[np.append(0, breaks + 1)], ticks[np.append(breaks, len(ticks) - 1)]
    return [TickRange(first, last) for first, last in zip(starts.tolist(), ends.tolist(), strict=True)]


def count(ranges: Iterable[TickRange], step: int) -> int:
    return sum(one.count(step) for one in ranges)
