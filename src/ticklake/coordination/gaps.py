"""Gaps: what finding a batch file changes in what is missing. Nothing here knows a database."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ticklake.ticks import TickRange, hull, split, subtract

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


def few(ranges: Sequence[TickRange]) -> list[TickRange]:
    """The same ranges, or, if they are very many, the one from the first to the last of their ticks."""
    return [*ranges] if len(ranges) <= _MOST_HOLES else [hull(ranges)]


class Searched:
    """The gaps that are searched for: whether a file falls into one is found by bisection."""

    def __init__(self, gaps: Iterable[TickRange]) -> None:
        self._gaps = sorted(gaps)
        self._starts = [gap.start for gap in self._gaps]

    def gap_of(self, ticks: TickRange) -> TickRange | None:
        """The last gap that these ticks overlap."""
        place = bisect_right(self._starts, ticks.end) - 1
        return self._gaps[place] if place >= 0 and self._gaps[place].end >= ticks.start else None
