"""Ranges of ticks and arithmetic on them. Both ends are included, as everywhere in TickLake."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import gcd, lcm
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class TickRange(NamedTuple):
    """The ticks from `start` to `end`, both included. It is empty (and false) if it ends before it starts."""

    start: int
    end: int

    def __bool__(self) -> bool:
        return self.start <= self.end

    def __contains__(self, tick: object) -> bool:
        return isinstance(tick, int) and self.start <= tick <= self.end

    def __str__(self) -> str:
        """Formats the range for people: `0–1,999`, one tick as `5`, an empty range as `none`."""
        if not self:
            return "none"
        return f"{self.start:,}" if self.start == self.end else f"{self.start:,}–{self.end:,}"

    def overlaps(self, other: TickRange) -> bool:
        """Returns True if the two ranges share a tick."""
        return self.start <= other.end and other.start <= self.end

    def covers(self, other: TickRange) -> bool:
        """Returns True if every tick of `other` is in this range."""
        return self.start <= other.start and other.end <= self.end

    def within(self, other: TickRange | None) -> TickRange:
        """Returns the part of this range that is in `other`, which may be empty. None stands for all ticks."""
        return self if other is None else TickRange(max(self.start, other.start), min(self.end, other.end))

    def count(self, step: int = 1) -> int:
        """Returns the number of ticks if every `step`-th is sampled, starting with the first."""
        return (self.end - self.start) // step + 1 if self else 0


def split(gap: TickRange, found: TickRange, step: int) -> list[TickRange]:
    """Returns what is left of a gap without `found`: no piece, one or two."""
    if not gap.overlaps(found):
        return [gap]
    pieces = (TickRange(gap.start, found.start - step), TickRange(found.end + step, gap.end))
    return [piece for piece in pieces if piece]


def subtract(ranges: Iterable[TickRange], covered: Iterable[TickRange], step: int) -> list[TickRange]:
    """Returns the sampled ticks of `ranges` that are not in `covered`, in order."""
    cuts = merged(covered, step)
    ends = [cut.end for cut in cuts]
    rest: list[TickRange] = []
    for whole in merged(ranges, step):
        piece = whole
        for cut in cuts[bisect_right(ends, whole.start - 1) :]:
            if not piece or cut.start > piece.end:
                break
            before, piece = TickRange(piece.start, cut.start - step), TickRange(cut.end + step, piece.end)
            rest += [before] if before else []
        rest += [piece] if piece else []
    return rest


def common(ranges: Sequence[TickRange], others: Sequence[TickRange], step: int) -> list[TickRange]:
    """Returns the sampled ticks that are in both."""
    return subtract(ranges, subtract(ranges, others, step), step)


def merged(ranges: Iterable[TickRange], step: int) -> list[TickRange]:
    """Returns the sampled ticks in as few ranges as possible, in order. Ranges without sampled ticks are left out.

    Ranges may come from another sampling interval. They are put on the grid before they are joined: 1–9 and
    11–19 have no sampled tick if every 10th is sampled, so they are not neighbours.
    """
    result: list[TickRange] = []
    for one in sorted(sampled for one in ranges if (sampled := on_grid(one, step))):
        if result and one.start <= result[-1].end + step:
            result[-1] = TickRange(result[-1].start, max(result[-1].end, one.end))
        else:
            result.append(one)
    return result


def hull(ranges: Sequence[TickRange]) -> TickRange:
    """Returns the range from the first to the last tick of ranges that are in order."""
    return TickRange(ranges[0].start, ranges[-1].end)


def on_grid(ticks: TickRange, step: int) -> TickRange:
    """Returns the sampled ticks of a range: its bounds move inwards to multiples of the sampling interval."""
    return TickRange(-(-ticks.start // step) * step, ticks.end // step * step)


def even_on_grid(first: int, last: int, every: int, step: int) -> list[TickRange]:
    """Returns the sampled ticks among `first`, `first + every`, … up to `last`, as ranges."""
    shared = gcd(every, step)
    if first % shared:
        return []
    # The least `further` for which first + further * every is a multiple of step.
    further = -first // shared * pow(every // shared, -1, step // shared) % (step // shared)
    start, period = first + further * every, every // shared * step
    if period == step:
        whole = on_grid(TickRange(start, last), step)
        return [whole] if whole else []
    return [TickRange(at, at) for at in range(start, last + 1, period)]


def ranges_of(ticks: npt.NDArray[np.int64], step: int) -> list[TickRange]:
    """Returns ascending ticks as ranges. A new range starts after each gap of more than the sampling interval."""
    import numpy as np

    if not len(ticks):
        return []
    breaks = np.flatnonzero(np.diff(ticks) > step)
    starts, ends = ticks[np.append(0, breaks + 1)], ticks[np.append(breaks, len(ticks) - 1)]
    return [TickRange(first, last) for first, last in zip(starts.tolist(), ends.tolist(), strict=True)]


def count(ranges: Iterable[TickRange], step: int) -> int:
    return sum(one.count(step) for one in ranges)


class Stretch(NamedTuple):
    """Recorded ticks: `start`, `start + step`, … up to `end`."""

    start: int
    end: int
    step: int

    @property
    def reach(self) -> TickRange:
        """The ticks of which it says whether they were recorded: all up to the next one that would have been."""
        return TickRange(self.start, self.end + self.step - 1)

    def within(self, ticks: TickRange) -> range:
        """Returns its ticks in a range."""
        skipped = max(0, -(-(ticks.start - self.start) // self.step))
        return range(self.start + skipped * self.step, min(self.end, ticks.end) + 1, self.step)


def joined_stretches(stretches: Iterable[Stretch]) -> list[Stretch]:
    """Returns stretches in order. Those of one interval that follow each other become one."""
    result: list[Stretch] = []
    for one in sorted(stretches):
        last = result[-1] if result else None
        if last and last.step == one.step and last.end < one.start <= last.end + one.step:
            result[-1] = last._replace(end=one.end)
        elif last != one:
            result.append(one)
    return result


class Grid:
    """The ticks that a run records: every `step`-th, or as its stretches say.

    If stretches overlap, the finest counts. Between two of them, only ticks count that both would have recorded.
    All ticks of a stretch must be multiples of its interval.
    """

    def __init__(self, step: int, stretches: Iterable[Stretch] = ()) -> None:
        self.step = step
        # Each zone begins where the one before it ends; the first holds for all ticks before it too.
        self._starts, self._steps = [0], [step]
        zones = _zones(stretches)
        if zones:
            self._starts, self._steps = [0], [zones[0][1]]
        for place, (ticks, every) in enumerate(zones):
            self._add(ticks.start, every)
            if place + 1 < len(zones):
                self._add(ticks.end + 1, lcm(every, zones[place + 1][1]))

    def _add(self, start: int, step: int) -> None:
        if start == self._starts[-1]:
            self._steps[-1] = step
        elif step != self._steps[-1]:
            self._starts.append(start)
            self._steps.append(step)

    @property
    def finest(self) -> int:
        """An interval whose multiples are all recorded ticks, and perhaps more."""
        return gcd(*self._steps)

    @property
    def is_even(self) -> bool:
        """Whether one interval holds for all ticks."""
        return len(self._steps) == 1

    def zones(self, ticks: TickRange) -> Iterator[tuple[TickRange, int]]:
        """Yields the parts of a range in which one interval holds."""
        place = max(0, bisect_right(self._starts, ticks.start) - 1)
        while place < len(self._starts) and ticks:
            end = self._starts[place + 1] - 1 if place + 1 < len(self._starts) else ticks.end
            if part := TickRange(ticks.start, min(end, ticks.end)):
                yield part, self._steps[place]
            ticks, place = TickRange(max(ticks.start, end + 1), ticks.end), place + 1

    def on_grid(self, ticks: TickRange) -> list[TickRange]:
        """Returns the recorded ticks of a range."""
        return [found for part, step in self.zones(ticks) if (found := on_grid(part, step))]

    def subtract(self, ranges: Iterable[TickRange], covered: Iterable[TickRange]) -> list[TickRange]:
        """Returns the recorded ticks of `ranges` that are not in `covered`, in order."""
        return self._by_zone(subtract, ranges, covered)

    def common(self, ranges: Iterable[TickRange], others: Iterable[TickRange]) -> list[TickRange]:
        """Returns the recorded ticks that are in both."""
        return self._by_zone(common, ranges, others)

    def merged(self, ranges: Iterable[TickRange]) -> list[TickRange]:
        """Returns the recorded ticks in few ranges, in order."""
        return self._by_zone(lambda those, _, step: merged(those, step), ranges, ())

    def count(self, ranges: Iterable[TickRange]) -> int:
        return sum(on_grid(part, step).count(step) for one in ranges for part, step in self.zones(one))

    def ticks_of(self, ticks: TickRange) -> npt.NDArray[np.int64]:
        """Returns the recorded ticks of a range."""
        import numpy as np

        parts = [np.arange(part.start, part.end + 1, step, dtype=np.int64) for part, step in self._even_parts(ticks)]
        return np.concatenate([np.empty(0, np.int64), *parts])

    def has(self, ticks: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Returns which of these ticks a run records."""
        import numpy as np

        places = np.maximum(np.searchsorted(np.array(self._starts), ticks, "right") - 1, 0)
        found: npt.NDArray[np.bool_] = (ticks >= 0) & (ticks % np.array(self._steps)[places] == 0)
        return found

    def ranges_of(self, ticks: npt.NDArray[np.int64]) -> list[TickRange]:
        """Returns ascending ticks as ranges. A new range starts after each gap of more than the sampling interval."""
        if self.is_even:
            return ranges_of(ticks, self._steps[0])
        edges = ticks.searchsorted([*self._starts[1:]])
        parts = [ticks[first:last] for first, last in zip([0, *edges], [*edges, len(ticks)], strict=True)]
        return [one for part, step in zip(parts, self._steps, strict=True) for one in ranges_of(part, step)]

    def _even_parts(self, ticks: TickRange) -> Iterator[tuple[TickRange, int]]:
        for part, step in self.zones(ticks):
            if found := on_grid(part, step):
                yield found, step

    def _by_zone(
        self,
        act: Callable[[list[TickRange], list[TickRange], int], list[TickRange]],
        ranges: Iterable[TickRange],
        others: Iterable[TickRange],
    ) -> list[TickRange]:
        if self.is_even:
            return act(list(ranges), list(others), self._steps[0])
        first, second = (self._parts(those) for those in (ranges, others))
        return [one for zone in sorted(first) for one in act(first[zone], second[zone], self._steps[zone])]

    def _parts(self, ranges: Iterable[TickRange]) -> defaultdict[int, list[TickRange]]:
        """Returns the parts of ranges in each zone, by its number."""
        found: defaultdict[int, list[TickRange]] = defaultdict(list)
        for one in ranges:
            for part, _ in self.zones(one):
                found[max(0, bisect_right(self._starts, part.start) - 1)].append(part)
        return found


def _zones(stretches: Iterable[Stretch]) -> list[tuple[TickRange, int]]:
    """Returns disjoint ranges and their interval, in order: where stretches overlap, the finest one."""
    reaches: defaultdict[int, list[TickRange]] = defaultdict(list)
    for one in stretches:
        reaches[one.step].append(one.reach)
    found: list[tuple[TickRange, int]] = []
    for step in sorted(reaches):
        finer = [ticks for ticks, _ in found]
        found += [(ticks, step) for ticks in subtract(reaches[step], finer, 1)]
    return sorted(found)
