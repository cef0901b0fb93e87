"""Gaps: how a batch file changes the recorded gaps. Pure functions without a database."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ticklake.ticks import TickRange, hull, on_grid, split, subtract

PENDING = "pending"
PERMANENT = "permanent"

# More holes in one file are more likely caused by a wrong sampling interval in the metadata than by lost ticks.
_MAX_HOLES = 100


class Gap(NamedTuple):
    """Ticks that no batch file has. They are searched for while the status is `pending`."""

    ticks: TickRange
    first_detected_ms: int
    status: str = PENDING


class MissingTicks(NamedTuple):
    """The ticks that a batch file lacks although its name promises them, and the stamp of the file when it was read."""

    ranges: tuple[TickRange, ...]
    stamp: str = ""
    reach: int | None = None
    """The last sampled tick before the next one of the file, if the file was sampled more coarsely than its run."""

    @classmethod
    def stored(cls, lacks: str | None, stamp: str | None) -> MissingTicks:
        return cls(tuple(TickRange(*ticks) for ticks in json.loads(lacks or "[]")), stamp or "")


NOTHING_MISSING = MissingTicks(())


class End(NamedTuple):
    """The end of a run as it is recorded for one table: the last tick, and the ticks that were never written."""

    last_tick: int | None = None
    never_written: tuple[TickRange, ...] = ()

    @property
    def columns(self) -> dict[str, object]:
        return {
            "last_tick": self.last_tick,
            "never_written": json.dumps(self.never_written) if self.never_written else None,
        }

    @classmethod
    def stored(cls, last_tick: int | None, never_written: str | None) -> End:
        return cls(last_tick, tuple(TickRange(*ticks) for ticks in json.loads(never_written or "[]")))


class GapChanges(NamedTuple):
    """The effect of a new batch: the removed gaps, the remaining parts of them, and the new gaps."""

    frontier: int
    closed: list[Gap]
    remaining: list[Gap]
    opened: list[TickRange]


def gap_before(ticks: TickRange, frontier: int | None, step: int, first: int = 0) -> TickRange | None:
    """Returns the missing ticks between the frontier and a batch; None if nothing is missing.

    Before the first batch, the run begins at `first`. The frontier is below 0 if the run was closed before that.
    """
    gap = TickRange(first if frontier is None or frontier < 0 else frontier + step, ticks.start - step)
    return gap or None


def gap_changes(frontier: int | None, gaps: Iterable[Gap], ticks: TickRange, step: int, first: int = 0) -> GapChanges:
    """Computes the effect of a new batch. `gaps` must include those that overlap it or lie between frontier and batch.

    The name of a batch need not fit the sampling interval. Ranges without a sampled tick are not gaps.

    The remaining parts of a gap keep its age and its status. There is one exception: a gap beyond the frontier comes
    from the name of a failed file. If it is permanent and reaches beyond this batch, that name was wrong, and the
    missing ticks before this batch are a new gap.
    """
    near = list(gaps)
    closed = [gap for gap in near if gap.ticks.overlaps(ticks)]
    reach = -1 if frontier is None else frontier
    refuted = [g for g in closed if g.status == PERMANENT and g.ticks.start > reach and g.ticks.end > ticks.end]
    remaining = [
        gap._replace(ticks=piece)
        for gap in closed
        for piece in split(gap.ticks, ticks, step)
        if on_grid(piece, step) and (gap not in refuted or piece.start > ticks.end)
    ]
    missing = gap_before(ticks, frontier, step, first)
    opened = [missing] if missing else []
    # Not `subtract`, which would move the bounds of a gap to the grid. They are one interval from the batches.
    for gap in near:
        if missing and gap not in refuted and gap.ticks.overlaps(missing):
            opened = [piece for one in opened for piece in split(one, gap.ticks, step)]
    return GapChanges(max(reach, ticks.end), closed, remaining, [one for one in opened if on_grid(one, step)])


def with_ages(missing: Sequence[TickRange], before: Sequence[Gap], step: int) -> tuple[list[Gap], list[TickRange]]:
    """Returns missing ticks as gaps: those that were gaps before, with their age and status, and the new ones.

    Both arguments must be in order, and neither may overlap itself. The ticks of `before` can be on another grid.
    """
    ends, known = [gap.ticks.end for gap in before], []
    for ticks in missing:
        for gap in before[bisect_left(ends, ticks.start) :]:
            if gap.ticks.start > ticks.end:
                break
            piece = on_grid(gap.ticks.within(ticks), step)
            known += [gap._replace(ticks=piece)] if piece else []
    return known, subtract(missing, [gap.ticks for gap in known], step)


def joined_if_many(ranges: Sequence[TickRange]) -> list[TickRange]:
    """Returns the ranges; if there are too many, one range from the first to the last tick."""
    return [*ranges] if len(ranges) <= _MAX_HOLES else [hull(ranges)]


class GapIndex:
    """Finds by bisection whether ticks overlap a gap."""

    def __init__(self, gaps: Iterable[TickRange]) -> None:
        self._gaps = sorted(gaps)
        self._starts = [gap.start for gap in self._gaps]

    def gap_of(self, ticks: TickRange) -> TickRange | None:
        """Returns the last gap that these ticks overlap; None if there is none."""
        place = bisect_right(self._starts, ticks.end) - 1
        return self._gaps[place] if place >= 0 and self._gaps[place].end >= ticks.start else None
