"""Draws a tick range as a bar: present, waiting and missing ticks."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from ticklake.ticks import TickRange

FRONTIER = "┃"


def bar(
    whole: TickRange, layers: Sequence[tuple[str, Sequence[TickRange]]], frontier: int | None, width: int, step: int = 1
) -> str:
    """Draws one character per stretch of ticks: the mark of the last layer that has a tick in it.

    Ranges of a layer are in tick order. A sampled tick covers all ticks up to the next sampled one.
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
