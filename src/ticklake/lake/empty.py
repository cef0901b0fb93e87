"""Ticks that are in a table and have no row there: the commit that indexed them says so."""

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
"""The commit metadata that names them, as `[[first, last, step], …]`."""

REMOVED = "ticklake.removed"
"""The commit metadata of a removal: `[first, last]`."""


_INT64 = TickRange(-(2**63), 2**63 - 1)
_SHOWN = 60


class EmptyTicks:
    """The record of a table, put together from its commits. Even runs of ticks stay runs, however long they get."""

    def __init__(self, text: str = "[]") -> None:
        self._start(text)

    def _start(self, text: str) -> None:
        self._runs: dict[int, tuple[int, int, int]] = {}
        self._spans = Spans()
        self._newest: int | None = None
        self._add(_runs_in(text))

    def take(self, info: Mapping[str, Any]) -> None:
        """What the next commit says of itself. ValueError, and nothing is taken, if that cannot be understood."""
        try:
            removed = _range_in(info[REMOVED]) if REMOVED in info else None
            added = _runs_in(info.get(EMPTY, "[]"))
        except ValueError as error:
            raise ValueError(f"what it says of ticks without rows is not what it should be ({error!r})") from error
        if removed is not None:
            self._remove(removed)
        self._add(added)

    def within(self, ticks: TickRange) -> Ticks:
        return joined(_run(*self._runs[number], ticks) for number in self._spans.overlapping(ticks))

    def all(self) -> Ticks:
        return joined(_even(*run) for run in self._runs.values())

    def text(self) -> str:
        """The whole record, as the metadata of one commit would tell it."""
        return json.dumps(list(self._runs.values()))

    def _add(self, runs: Iterable[tuple[int, int, int]]) -> None:
        for first, last, step in runs:
            run = self._continued(first, last, step) or (first, last, step)
            self._newest = self._spans.add(TickRange(run[0], run[1]))
            self._runs[self._newest] = run

    def _continued(self, first: int, last: int, step: int) -> tuple[int, int, int] | None:
        """The newest run, taken out and made longer by this one, where the two make one even run."""
        if self._newest is None:
            return None
        start, end, even = self._runs[self._newest]
        gap = first - end
        if gap <= 0 or (first < last and step != gap) or (start < end and even != gap):
            return None
        self._spans.drop(self._newest)
        del self._runs[self._newest]
        return start, last, gap

    def _remove(self, ticks: TickRange) -> None:
        left = self.all()
        self._start(packed(left[(left < ticks.start) | (left > ticks.end)]))


def _runs_in(text: object) -> list[tuple[int, int, int]]:
    """The runs that such a text names. ValueError if it is anything else: other engines write to the log as well."""
    return [(*_checked(first, last), _checked(1, step)[1]) for first, last, step in _lists(text, 3)]


def _range_in(text: object) -> TickRange:
    ((first, last),) = _lists(f"[{text}]" if isinstance(text, str) else text, 2)
    return _checked(first, last)


def _lists(text: object, length: int) -> list[list[object]]:
    """A list of lists of this length."""
    try:
        found = json.loads(text) if isinstance(text, str) else None
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(found, list) or not all(isinstance(one, list) and len(one) == length for one in found):
        raise ValueError(f"{str(text)[:_SHOWN]!r} is no list of lists of {length} numbers")
    return found


def _checked(first: object, last: object) -> TickRange:
    for value in (first, last):
        # Neither true, which is an int in Python, nor 1.0.
        if type(value) is not int or value not in _INT64:
            raise ValueError(f"{str(value)[:_SHOWN]!r} is no integer of 64 bits")
    found = TickRange(first, last)  # type: ignore[arg-type]
    if not found:
        raise ValueError(f"{last} comes before {first}")
    return found


def packed(ticks: Ticks) -> str:
    return json.dumps(even_runs(ticks))


def even_runs(ticks: Ticks) -> list[list[int]]:
    """Ascending ticks as few runs of even steps: `[first, last, step]` each."""
    runs: list[list[int]] = []
    steps = np.diff(ticks)
    if len(steps) and (steps == steps[0]).all():
        return [[int(ticks[0]), int(ticks[-1]), int(steps[0])]]
    for tick in ticks.tolist():
        if runs and runs[-1][0] == runs[-1][1]:
            runs[-1][1:] = [tick, tick - runs[-1][0]]
        elif runs and tick - runs[-1][1] == runs[-1][2]:
            runs[-1][1] = tick
        else:
            runs.append([tick, tick, 1])
    return runs


def joined(parts: Iterable[Ticks]) -> Ticks:
    """TypeError for anything but integers: a float is equal to a tick and is none, so all ticks would seem missing."""
    return np.unique(np.concatenate([np.empty(0, np.int64), *parts], dtype=np.int64, casting="safe"))


def ticks_of(column: pa.Array | pa.ChunkedArray) -> Ticks:
    """A column as int64, without its nulls, which another engine may have added: with one, numpy has all as floats."""
    ticks: Ticks = pc.cast(column.drop_null(), pa.int64()).to_numpy()
    return ticks


def _run(first: int, last: int, step: int, ticks: TickRange) -> Ticks:
    """The part of a run that lies within a range."""
    start = first + max(0, -(-(ticks.start - first) // step)) * step
    return _even(start, min(last, ticks.end), step)


def _even(first: int, last: int, step: int) -> Ticks:
    """Counted from the first: a bound behind the last tick there can be would be no int64."""
    return first + step * np.arange(TickRange(first, last).count(step), dtype=np.int64)
