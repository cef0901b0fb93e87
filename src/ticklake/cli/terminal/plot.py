"""A small line plot in block characters."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

BLOCKS = " ▁▂▃▄▅▆▇█"


def plot(values: Sequence[float], *, title: str, width: int = 72, height: int = 8) -> str:
    """Draws columns of blocks with the scale on the left. Each column is the mean of its share of the values."""
    if not values:
        return f"{title}: nothing yet"
    columns = _means(values, min(width, len(values)))
    top = max(*columns, 1)
    margin = len(f"{top:,.0f}")
    lines = [title.rjust(margin + 2 + len(title))]
    for row in range(height - 1, -1, -1):
        label = f"{top * (row + 1) / height:,.0f}" if row in (height - 1, height // 2 - 1) else ""
        cells = (_block(value / top * height - row) for value in columns)
        lines.append(f"{label:>{margin}} ┤{''.join(cells)}")
    lines.append(f"{'0':>{margin}} └{'─' * len(columns)}")
    return "\n".join(lines)


def _means(values: Sequence[float], count: int) -> list[float]:
    edges = [round(index * len(values) / count) for index in range(count + 1)]
    return [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]


def _block(fill: float) -> str:
    return BLOCKS[max(0, min(8, round(fill * 8)))]
