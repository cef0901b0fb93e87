"""A changing set of tick ranges, searched for overlaps with one comparison over plain arrays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ticklake.ticks import TickRange

Numbers = npt.NDArray[np.int64]

_FIRST_CAPACITY = 64


class Spans:
    """A set of ranges. Each has a number, which is used again after the range is dropped."""

    def __init__(self) -> None:
        self._low = np.empty(_FIRST_CAPACITY, np.int64)
        self._high = np.empty(_FIRST_CAPACITY, np.int64)
        self._used = 0
        self._free: list[int] = []

    def add(self, ticks: TickRange) -> int:
        if self._free:
            number = self._free.pop()
        else:
            number = self._used
            self._used += 1
            if self._used > len(self._low):
                self._low, self._high = _doubled(self._low), _doubled(self._high)
        self._low[number], self._high[number] = ticks
        return number

    def drop(self, number: int) -> None:
        # These bounds overlap nothing until the number is used again.
        self._low[number], self._high[number] = np.iinfo(np.int64).max, np.iinfo(np.int64).min
        self._free.append(number)

    def overlapping(self, ticks: TickRange) -> list[int]:
        low, high = self._low[: self._used], self._high[: self._used]
        found: list[int] = np.flatnonzero((low <= ticks.end) & (high >= ticks.start)).tolist()
        return found


def _doubled(array: Numbers) -> Numbers:
    return np.concatenate([array, np.empty_like(array)])
