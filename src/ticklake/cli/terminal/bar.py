"""A bar of a tick range: what is there, what is on its way, what is missing."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from ticklake.ticks import TickRange

FRONTIER = "┃"


def bar(
    whole: TickRange, layers: Sequence[tuple[str, Sequence[TickRange]]], frontier: int | None, width: int, step: int = 1
) -> str:
    """One character a stretch of ticks, that of the last layer which has any tick of it; layers are in tick order.

    A sampled tick stands for all up to the next one.
    """
    if not whole:
        return ""
    length = whole.end - whole.start + step
    width = min(width, length // step)
    edges = [whole.start + length * cell // width for cell in range(width + 1)]
    cells = [_cell(TickRange(edges[cell], edges[cell + 1] - 1), layers, step) for cell in range(width)]
    if frontier is not None and frontier < whole.end:
        cells.insert(bisect_right(edges, frontier), FRONTIER)
    return "".join(cells)


def _cell(ticks: TickRange, layers: Sequence[tuple[str, Sequence[TickRange]]], step: int) -> str:
    shown = " "
    for mark, ranges in layers:
        place = bisect_right(ranges, (ticks.end, float("inf"))) - 1
        if place >= 0 and ranges[place].end + step > ticks.start:
            shown = mark
    return shown
