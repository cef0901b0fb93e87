"""The verdict on a table: whether it has every tick of its run once, and if not, which it lacks. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from ticklake.ticks import TickRange, common, count, on_grid, ranges_of, subtract


class Verdict(StrEnum):
    COMPLETE = "complete"
    INCOMPLETE = "incomplete"
    RUNNING = "running"


@dataclass(frozen=True)
class Expected:
    """The ticks that a run has: those of its files, and, if it has ended, all up to its last one."""

    step: int
    files: list[TickRange] = field(default_factory=list)
    last_tick: int | None = None
    held: list[TickRange] | None = None
    """What the files hold, if more is known of that than their names."""

    @property
    def ticks(self) -> TickRange:
        """From 0 to the end of the run, or as far as its files reach; empty if there is nothing yet."""
        ends = [ticks.end for ticks in self.files]
        return on_grid(TickRange(0, max(ends, default=-1) if self.last_tick is None else self.last_tick), self.step)

    @property
    def lost(self) -> list[TickRange]:
        """What is expected and in no file."""
        files = self.files if self.held is None else self.held
        return subtract([self.ticks], [on_grid(ticks, self.step) for ticks in files], self.step)


@dataclass(frozen=True)
class Coverage:
    """How much of what is expected a table has: `waiting` ticks have a file and no rows yet, `lost` ones have no file.

    `unexpected` are ticks it has that do not belong to the run: behind its end, below 0, or between two sampled ones.
    It is `flawless` if nothing is missing, unexpected or wrong in another way, be the end of the run known or not.
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


def judge(expected: Expected, present: npt.NDArray[np.int64], flaws: int = 0) -> Coverage:
    """`present` are the ticks that the table has, in order; any flaw, such as a key that is there twice, spoils it."""
    step, whole = expected.step, expected.ticks
    belongs = (present % step == 0) & (present >= 0) & (present <= whole.end)
    covered = ranges_of(present[belongs], step)
    lacking = subtract([whole], covered, step)
    lost = common(lacking, expected.lost, step)
    unexpected = ranges_of(present[~belongs], 1)
    flawless = not (lacking or unexpected or flaws)
    return Coverage(
        verdict=_verdict(expected, flawless),
        expected=whole,
        ticks=count(covered, step),
        covered=covered,
        waiting=subtract(lacking, lost, step),
        lost=lost,
        unexpected=unexpected,
        missing=lacking,
        flawless=flawless,
    )


def judge_batches(
    present: npt.NDArray[np.int64],
    known: Mapping[int, str] | None = None,
    flaws: int = 0,
    *,
    first: int = 1,
    others: Sequence[int] = (),
) -> Coverage:
    """The verdict on a table of event batches, which count from the run's `first` one without a gap.

    `known` has the status of every batch of the run that the queue remembers; `others` are those of other runs. Without
    them, nobody knows of batches at the end.
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
    return Coverage(verdict, whole, len(present), covered, waiting, lost, [], lacking, not (lacking or flaws))


def overall(ended: bool, verdicts: Sequence[Verdict]) -> Verdict:
    """A run is complete if it has ended and all of its tables, at least one, are."""
    if ended and verdicts and all(verdict is Verdict.COMPLETE for verdict in verdicts):
        return Verdict.COMPLETE
    return Verdict.INCOMPLETE if ended else Verdict.RUNNING


def _verdict(expected: Expected, flawless: bool) -> Verdict:
    if expected.last_tick is None:
        return Verdict.RUNNING
    return Verdict.COMPLETE if flawless else Verdict.INCOMPLETE
