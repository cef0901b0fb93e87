"""Gaps: interval arithmetic over sampled ticks. Bounds are inclusive everywhere; nothing here knows a database."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from math import gcd
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ticklake.ticks import TickRange

PENDING = "pending"
PERMANENT = "permanent"

# A file with more holes than this has a wrong sampling interval in its metadata, rather than so many accidents.
_MOST_HOLES = 100


class Gap(NamedTuple):
    """Ticks that no batch file has been found for, since when, and whether they are still looked for."""

    ticks: TickRange
    first_detected_ms: int
    status: str = PENDING


class Short(NamedTuple):
    """A batch file holds fewer ticks than its name promises: those it lacks, and its stamp when it was read."""

    lacks: tuple[TickRange, ...]
    stamp: str = ""

    @classmethod
    def stored(cls, lacks: str | None, stamp: str | None) -> Short:
        return cls(tuple(TickRange(*ticks) for ticks in json.loads(lacks or "[]")), stamp or "")


WHOLE = Short(())


class Change(NamedTuple):
    """What finding a batch changes: gaps that are gone, what is left of them, and the gaps that it reveals."""

    frontier: int
    closed: list[Gap]
    left: list[Gap]
    opened: list[TickRange]


def gap_before(ticks: TickRange, frontier: int | None, step: int) -> TickRange | None:
    """What is missing between the frontier, the last tick that any batch reaches, and a batch further on.

    None where nothing is missing, which is so for every batch that starts at or below what is expected.
    """
    gap = TickRange(0 if frontier is None else frontier + step, ticks.start - step)
    return gap or None


def split(gap: TickRange, found: TickRange, step: int) -> list[TickRange]:
    """What is left of a gap once `found` is there: nothing, one piece or two."""
    if not gap.overlaps(found):
        return [gap]
    pieces = (TickRange(gap.start, found.start - step), TickRange(found.end + step, gap.end))
    return [piece for piece in pieces if piece]


def discover(frontier: int | None, gaps: Iterable[Gap], ticks: TickRange, step: int) -> Change:
    """A batch is found. `gaps` are at least those that it overlaps or that lie between the frontier and its end.

    What is left of a gap keeps its age and its status. One exception: a gap beyond the frontier is known only from the
    name of a file that failed. If it was given up and reaches beyond this batch, that name was wrong, and what is
    missing before this batch is news.
    """
    near = list(gaps)
    closed = [gap for gap in near if gap.ticks.overlaps(ticks)]
    reach = -1 if frontier is None else frontier
    refuted = [g for g in closed if g.status == PERMANENT and g.ticks.start > reach and g.ticks.end > ticks.end]
    left = [
        gap._replace(ticks=piece)
        for gap in closed
        for piece in split(gap.ticks, ticks, step)
        if gap not in refuted or piece.start > ticks.end
    ]
    missing = gap_before(ticks, frontier, step)
    known = [gap.ticks for gap in near if gap not in refuted]
    opened = subtract([missing], known, step) if missing else []
    return Change(max(reach, ticks.end), closed, left, opened)


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


def few(ranges: Sequence[TickRange]) -> list[TickRange]:
    """The same ranges, or, if they are very many, the one from the first to the last of their ticks."""
    return [*ranges] if len(ranges) <= _MOST_HOLES else [hull(ranges)]


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
    if not len(ticks):
        return []
    breaks = np.flatnonzero(np.diff(ticks) > step)
    starts, ends = ticks[np.append(0, breaks + 1)], ticks[np.append(breaks, len(ticks) - 1)]
    return [TickRange(first, last) for first, last in zip(starts.tolist(), ends.tolist(), strict=True)]


def count(ranges: Iterable[TickRange], step: int) -> int:
    return sum(one.count(step) for one in ranges)


class Searched:
    """The gaps that are searched for: whether a file falls into one is found by bisection."""

    def __init__(self, gaps: Iterable[TickRange]) -> None:
        self._gaps = sorted(gaps)
        self._starts = [gap.start for gap in self._gaps]

    def gap_of(self, ticks: TickRange) -> TickRange | None:
        """The last gap that these ticks overlap."""
        place = bisect_right(self._starts, ticks.end) - 1
        return self._gaps[place] if place >= 0 and self._gaps[place].end >= ticks.start else None
