"""The states of a batch file: found, claimed, completed or failed."""

from __future__ import annotations

from typing import NamedTuple

from ticklake.coordination.gaps import NOTHING_MISSING, MissingTicks
from ticklake.ticks import TickRange, subtract

LOST_OFTEN = 3
"""A file whose claims were lost this often is claimed alone."""


class FoundFile(NamedTuple):
    """A listed batch file. `name` is its key without the run's folder."""

    name: str
    ticks: TickRange


class Claim(NamedTuple):
    """A batch file that one indexer has claimed. `version` distinguishes it from earlier and later claims.

    A crash of the server may undo a claim and reuse its version, so changes to a claim also check its holder. `lost` is
    how often a process has ended with a claim of this file.
    """

    name: str
    ticks: TickRange
    version: int
    lost: int = 0

    @property
    def is_suspect(self) -> bool:
        """Whether the file may be what ended the process. Then it is claimed alone."""
        return self.lost >= LOST_OFTEN


class Batch(NamedTuple):
    """The record of a batch file. `status` is `claimed`, `completed` or `failed`; `error` says why it failed."""

    name: str
    ticks: TickRange
    status: str
    error: str
    missing: MissingTicks = NOTHING_MISSING

    def present_ticks(self, step: int) -> list[TickRange]:
        """Returns the sampled ticks that its name promises, without those that are known to be missing."""
        return subtract([self.ticks], self.missing.ranges, step)


class CoordinatorStatus(NamedTuple):
    """Counts of claims and gaps. `claimed_by_others` does not include the claims of the asking indexer."""

    claimed_by_others: int
    expired: int
    gaps_pending: int
    oldest_gap_ms: int | None
