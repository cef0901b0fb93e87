"""Empty ticks: ticks that were indexed but have no rows. The commit that indexed them records them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ticklake.lake.intervals import Spans
from ticklake.ticks import TickRange

Ticks = npt.NDArray[np.int64]

EMPTY = "ticklake.empty"
"""The commit metadata that lists empty ticks, as `[[first, last, step], …]`."""

REMOVED = "ticklake.removed"
"""The commit metadata of a removal: `[first, last]`."""


_INT64 = TickRange(-(2**63), 2**63 - 1)
_SHOWN = 60


class EmptyTicks:
    """The empty ticks of a table, collected from its commits. Evenly spaced ticks are stored as one sequence."""

    def __init__(self, text: str = "[]") -> None:
        self._start(text)

    def _start(self, text: str) -> None:
        self._sequences: dict[int, tuple[int, int, int]] = {}
        self._spans = Spans()
        self._newest: int | None = None
        self._add(_sequences_in(text))

    def apply(self, info: Mapping[str, Any]) -> None:
        """Applies the metadata of the next commit. Raises ValueError and changes nothing if it is not valid."""
        try:
            removed = _range_in(info[REMOVED]) if REMOVED in info else None
            added = _sequences_in(info.get(EMPTY, "[]"))
        except ValueError as error:
            raise ValueError(f"its record of empty ticks is not valid ({error!r})") from error
        if removed is not None:
            self._remove(removed)
        self._add(added)

    def within(self, ticks: TickRange) -> Ticks:
        return joined(_within(*self._sequences[number], ticks) for number in self._spans.overlapping(ticks))

    def all(self) -> Ticks:
        return joined(_even(*sequence) for sequence in self._sequences.values())

    def text(self) -> str:
        """Returns all empty ticks in the format of the commit metadata."""
        return json.dumps(list(self._sequences.values()))

    def _add(self, sequences: Iterable[tuple[int, int, int]]) -> None:
        for first, last, step in sequences:
            sequence = self._extend_newest(first, last, step) or (first, last, step)
            self._newest = self._spans.add(TickRange(sequence[0], sequence[1]))
            self._sequences[self._newest] = sequence

    def _extend_newest(self, first: int, last: int, step: int) -> tuple[int, int, int] | None:
        """Removes the newest sequence and returns it with this one appended; None if the two are not evenly spaced."""
        if self._newest is None:
            return None
        start, end, even = self._sequences[self._newest]
        gap = first - end
        if gap <= 0 or (first < last and step != gap) or (start < end and even != gap):
            return None
        self._spans.drop(self._newest)
        del self._sequences[self._newest]
        return start, last, gap

    def _remove(self, ticks: TickRange) -> None:
        left = self.all()
        self._start(packed(left[(left < ticks.start) | (left > ticks.end)]))


def _sequences_in(text: object) -> list[tuple[int, int, int]]:
    """Parses a list of sequences. Raises ValueError if it is not valid, because other engines also write to the log."""
    return [(*_checked(first, last), _checked(1, step)[1]) for first, last, step in _lists(text, 3)]


def _range_in(text: object) -> TickRange:
    ((first, last),) = _lists(f"[{text}]" if isinstance(text, str) else text, 2)
    return _checked(first, last)


def _lists(text: object, length: int) -> list[list[object]]:
    """Parses a list of lists of this length."""
    try:
        found = json.loads(text) if isinstance(text, str) else None
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(found, list) or not all(isinstance(one, list) and len(one) == length for one in found):
        raise ValueError(f"{str(text)[:_SHOWN]!r} is not a list of lists of {length} numbers")
    return found


def _checked(first: object, last: object) -> TickRange:
    for value in (first, last):
        # Refuses True, which is an int in Python, and 1.0.
        if type(value) is not int or value not in _INT64:
            raise ValueError(f"{str(value)[:_SHOWN]!r} is not a 64-bit integer")
    found = TickRange(first, last)  # type: ignore[arg-type]
    if not found:
        raise ValueError(f"{last} comes before {first}")
    return found


def packed(ticks: Ticks) -> str:
    return json.dumps(even_sequences(ticks))


def even_sequences(ticks: Ticks) -> list[list[int]]:
    """Returns ascending ticks as a few evenly spaced sequences, each `[first, last, step]`."""
    found: list[list[int]] = []
    steps = np.diff(ticks)
    if len(steps) and (steps == steps[0]).all():
        return [[int(ticks[0]), int(ticks[-1]), int(steps[0])]]
    for tick in ticks.tolist():
        if found and found[-1][0] == found[-1][1]:
            found[-1][1:] = [tick, tick - found[-1][0]]
        elif found and tick - found[-1][1] == found[-1][2]:
            found[-1][1] = tick
        else:
            found.append([tick, tick, 1])
    return found


def joined(parts: Iterable[Ticks]) -> Ticks:
    """Returns all ticks, sorted and unique. Raises TypeError for floats, which would make ticks seem missing."""
    return np.unique(np.concatenate([np.empty(0, np.int64), *parts], dtype=np.int64, casting="safe"))


def ticks_of(column: pa.Array | pa.ChunkedArray) -> Ticks:
    """Returns a column as int64 without nulls, which another engine may have added. Nulls would make it floats."""
    ticks: Ticks = pc.cast(column.drop_null(), pa.int64()).to_numpy()
    return ticks


def _within(first: int, last: int, step: int, ticks: TickRange) -> Ticks:
    """Returns the part of a sequence that is in a range."""
    start = first + max(0, -(-(ticks.start - first) // step)) * step
    return _even(start, min(last, ticks.end), step)


def _even(first: int, last: int, step: int) -> Ticks:
    """Counts from `first`, because an exclusive end after the last possible tick does not fit into int64."""
    return first + step * np.arange(TickRange(first, last).count(step), dtype=np.int64)
