"""The life of a run: whether it is running, has ended or was abandoned, and what may be recorded next. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from ticklake.contracts import RunCompleted
from ticklake.ticks import TickRange

BEFORE_FIRST = -1
"""The last tick of a run that was closed before its first tick was written."""


class RunState(StrEnum):
    RUNNING = "running"
    ENDED = "ended"
    """Its producer, or `ticklake end` for it, has recorded the end."""
    ABANDONED = "abandoned"
    """It was closed without its producer."""


class Cause(StrEnum):
    """Why a run was abandoned."""

    COMMAND = "command"
    SILENCE = "silence"
    RESTART = "restart"


@dataclass(frozen=True)
class Life:
    """The recorded life of a run. `never_written` are the ticks that no file had when it was abandoned."""

    state: RunState = RunState.RUNNING
    last_tick: int | None = None
    cause: str = ""
    never_written: tuple[TickRange, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the run was closed before its first tick was written."""
        return self.last_tick == BEFORE_FIRST

    def __str__(self) -> str:
        if self.last_tick is None:
            return str(self.state)
        return f"{self.state} {at_tick(self.last_tick)}"


def at_tick(last_tick: int) -> str:
    """Says where a run was closed."""
    return "before its first tick" if last_tick == BEFORE_FIRST else f"at tick {last_tick:,}"


class Step(StrEnum):
    RECORD = "record"
    KEEP = "keep"
    REPLACE = "replace"
    REFUSE = "refuse"


class Decision(NamedTuple):
    """What happens to the record of a run, and the last tick that it has afterwards."""

    step: Step
    last_tick: int


def life_of(end: RunCompleted | None) -> Life:
    """Returns the life that a record of the end means; None is a run without a record."""
    if end is None:
        return Life()
    state = RunState.ABANDONED if end.abandoned_by else RunState.ENDED
    bounds = list(end.never_written)
    ranges = tuple(TickRange(first, last) for first, last in zip(bounds[::2], bounds[1::2], strict=False))
    return Life(state, end.last_tick, end.abandoned_by, ranges)


def decide(life: Life, *, cause: str, last_tick: int | None, written: int = BEFORE_FIRST) -> Decision:
    """Decides about a wish to abandon a run or, without a `cause`, to end it. `written` is the last tick of its files.

    Without a `last_tick` the run is closed at `written`. An end never changes. The last tick of an abandoned run only
    grows: if files came after it was closed, closing it again counts them too. A silence is only a guess: everything
    else replaces it, and it replaces nothing else.
    """
    known = life.last_tick
    if known is None:
        wanted = written if last_tick is None else last_tick
        return Decision(Step.REFUSE if written > wanted else Step.RECORD, wanted)
    was_silent, is_silent = life.cause == Cause.SILENCE, cause == Cause.SILENCE
    if is_silent and not was_silent:
        return Decision(Step.KEEP, known)
    is_guess = was_silent and not is_silent
    if not is_guess and not (cause and life.state is RunState.ABANDONED):
        return Decision(Step.KEEP if last_tick in (None, known) else Step.REFUSE, known)
    least = max(known, written)
    wanted = least if last_tick is None else last_tick
    if wanted < least:
        return Decision(Step.REFUSE, known)
    return Decision(Step.REPLACE if is_guess or wanted > known else Step.KEEP, wanted)


def bounds_of(ranges: Iterable[TickRange]) -> list[int]:
    """Returns ranges as a record stores them: first and last tick of each."""
    return [bound for ticks in ranges for bound in (ticks.start, ticks.end)]


def may_write(life: Life, ticks: Sequence[int]) -> bool:
    """Returns whether a producer may write these ticks. Writing again what is before the end is harmless."""
    return life.last_tick is None or not ticks or ticks[-1] <= life.last_tick
