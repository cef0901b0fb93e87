"""A batch file on its way: found, claimed, completed or failed."""

from __future__ import annotations

from typing import NamedTuple

from ticklake.coordination.gaps import WHOLE, Short
from ticklake.ticks import TickRange, subtract


class Found(NamedTuple):
    """A batch file that a listing has shown; its name is the part of its key below the run's folder."""

    name: str
    ticks: TickRange


class Claim(NamedTuple):
    """A batch file in the hands of one indexer; `version` is the fence that tells it from later claims.

    A server that crashes may undo a claim and give its version again, so the holder is part of the fence.
    """

    name: str
    ticks: TickRange
    version: int


class Batch(NamedTuple):
    """What is known of a batch: `claimed`, `completed`, or `failed` with its error; and what it was found to lack."""

    name: str
    ticks: TickRange
    status: str
    error: str
    short: Short = WHOLE

    def has(self, step: int) -> list[TickRange]:
        """The ticks that its name promises, less those that it is known to lack."""
        return subtract([self.ticks], self.short.lacks, step)


class Look(NamedTuple):
    """The state of things at one glance."""

    claimed_by_others: int
    expired: int
    gaps_pending: int
    oldest_gap_ms: int | None
