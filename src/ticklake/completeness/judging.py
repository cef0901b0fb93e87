"""The verdict on a table: whether it has every tick of its run, and which ticks are missing. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ticklake.ticks import Grid, Stretch, TickRange, common, count, hull, ranges_of, subtract


class Verdict(StrEnum):
    COMPLETE = "complete"
    INCOMPLETE = "incomplete"
    RUNNING = "running"


@dataclass(frozen=True)
class Expected:
    """The expected ticks of a run: those of its files and, if it is not running, all up to its last tick."""

    step: int
    files: list[TickRange] = field(default_factory=list)
    last_tick: int | None = None
    present: list[TickRange] | None = None
    """The ticks in the files; None if only their names are known."""
    never_written: list[TickRange] = field(default_factory=list)
    """Ticks that no file had when the run was abandoned. A table does not have to have them."""
    stretches: list[Stretch] = field(default_factory=list)
    """How often the files were sampled, if that is not every `step`-th tick."""
    first_tick: int = 0
    """Where the run begins: after 0 if it is a fork. Files before it count too."""

    @cached_property
    def grid(self) -> Grid:
        return Grid(self.step, self.stretches)

    @cached_property
    def ticks(self) -> TickRange:
        """From the beginning to the end of the run, or to the last tick of its files; empty without files."""
        ends = [ticks.end for ticks in self.files]
        first = min([self.first_tick, *(ticks.start for ticks in self.files)])
        whole = TickRange(first, max(ends, default=-1) if self.last_tick is None else self.last_tick)
        parts = self.grid.on_grid(whole)
        return hull(parts) if parts else TickRange(0, -1)

    @cached_property
    def lost(self) -> list[TickRange]:
        """The expected ticks that no file has."""
        files = self.files if self.present is None else self.present
        return self.grid.subtract([self.ticks], files)

    @property
    def excused(self) -> list[TickRange]:
        """The ticks that were never written and that no file has today."""
        return self.grid.common(self.lost, self.never_written) if self.never_written else []


@dataclass(frozen=True)
class Coverage:
    """The expected ticks that a table has. `waiting` ticks have a file but are not indexed; `lost` ticks have no file.

    `unexpected` ticks do not belong to the run: after its end, below 0, or not sampled. The table is `flawless` if
    nothing is missing, unexpected or otherwise wrong, even if the end of the run is not known.
    """

    verdict: Verdict
    expected: TickRange
    ticks: int
    covered: list[TickRange]
    waiting: list[TickRange]
    lost: list[TickRange]
    unexpected: list[TickRange]
    missing: list[TickRange]
    flawless: bool
    expected_ticks: int
    missing_ticks: int


def judge(expected: Expected, present: npt.NDArray[np.int64], flaws: int = 0) -> Coverage:
    """Judges a table of ticks. `present` are its ticks in order; `flaws` counts defects such as duplicate keys."""
    grid, whole = expected.grid, expected.ticks
    belongs = grid.has(present) & (present >= whole.start) & (present <= whole.end)
    covered = grid.ranges_of(present[belongs])
    lacking = grid.subtract([whole], sorted([*covered, *expected.excused]))
    lost = grid.common(lacking, expected.lost)
    unexpected = ranges_of(present[~belongs], 1)
    flawless = not (lacking or unexpected or flaws)
    return Coverage(
        verdict=_verdict(expected, flawless),
        expected=whole,
        ticks=int(belongs.sum()),
        covered=covered,
        waiting=grid.subtract(lacking, lost),
        lost=lost,
        unexpected=unexpected,
        missing=lacking,
        flawless=flawless,
        expected_ticks=grid.count([whole]),
        missing_ticks=grid.count(lacking),
    )


def judge_batches(
    present: npt.NDArray[np.int64],
    known: Mapping[int, str] | None = None,
    flaws: int = 0,
    *,
    first: int = 1,
    others: Sequence[int] = (),
) -> Coverage:
    """Judges a table of event batches, whose numbers start at `first` and have no gaps.

    `known` has the status of each batch of the run in the queue; `others` are batches of other runs. Without `known`,
    missing batches at the end are not noticed.
    """
    known = known or {}
    whole = TickRange(first, max([first - 1, *known, *present.tolist()]))
    covered = ranges_of(present, 1)
    elsewhere = ranges_of(np.setdiff1d(np.array(others, np.int64), present), 1)
    lacking = subtract([whole], sorted([*covered, *elsewhere]), 1)
    open_ = [TickRange(number, number) for number, status in known.items() if status in ("pending", "processing")]
    waiting = common(lacking, open_, 1)
    lost = subtract(lacking, waiting, 1)
    verdict = Verdict.INCOMPLETE if lost or flaws else Verdict.RUNNING if waiting else Verdict.COMPLETE
    flawless, ticks = not (lacking or flaws), len(present)
    expected, missing = whole.count(), count(lacking, 1)
    return Coverage(verdict, whole, ticks, covered, waiting, lost, [], lacking, flawless, expected, missing)


def overall(ended: bool, verdicts: Sequence[Verdict]) -> Verdict:
    """A run is complete if it has ended, has at least one table, and all its tables are complete."""
    if ended and verdicts and all(verdict is Verdict.COMPLETE for verdict in verdicts):
        return Verdict.COMPLETE
    return Verdict.INCOMPLETE if ended else Verdict.RUNNING


def _verdict(expected: Expected, flawless: bool) -> Verdict:
    if expected.last_tick is None:
        return Verdict.RUNNING
    return Verdict.COMPLETE if flawless else Verdict.INCOMPLETE
