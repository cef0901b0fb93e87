"""A bar of a tick range: what is there, what is on its way, what is missing."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from ticklake.ticks import TickRange

FRONTIER = "┃"


def bar(whole: TickRange, layers: Sequence[tuple[str, Sequence[TickRange]]], frontier: int | None, width: int) -> str:
    """One character a stretch of ticks, that of the last layer which has any tick of it; layers are in tick order."""
    if not whole:
        return ""
    length = whole.end - whole.start + 1
    width = min(width, length)
    edges = [whole.start + length * cell // width for cell in range(width + 1)]
    cells = [_cell(TickRange(edges[cell], edges[cell + 1] - 1), layers) for cell in range(width)]
    if frontier is not None and frontier < whole.end:
        cells.insert(bisect_right(edges, frontier), FRONTIER)
    return "".join(cells)


def _cell(ticks: TickRange, layers: Sequence[tuple[str, Sequence[TickRange]]]) -> str:
    shown = " "
    for mark, ranges in layers:
        place = bisect_right(ranges, (ticks.end, float("inf"))) - 1
        if place >= 0 and ranges[place].end >= ticks.start:
            shown = mark
    return shown
