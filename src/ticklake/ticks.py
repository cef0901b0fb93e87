"""Ranges of ticks: inclusive at both ends, as everywhere in TickLake."""

from __future__ import annotations

from typing import NamedTuple


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
        return self.start <= other.end and other.start <= self.end

    def covers(self, other: TickRange) -> bool:
        return self.start <= other.start and other.end <= self.end

    def within(self, other: TickRange | None) -> TickRange:
        """The part of it that is in `other`, which may be empty; all of it where there is no other."""
        return self if other is None else TickRange(max(self.start, other.start), min(self.end, other.end))

    def count(self, step: int = 1) -> int:
        """How many ticks it holds when every `step`-th is sampled, the first one included."""
        return (self.end - self.start) // step + 1 if self else 0
