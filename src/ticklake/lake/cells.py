"""The tables of cells, and which of them has the cells of a tick.

`environment_data` has cells of ticks. Its property `ticklake.cells` says of which: `all`, the default, or `snapshots`,
those that are recorded completely. Then a tick without rows says nothing about its world.

`environment_changes` has what each tick changes `since_tick`, the recorded tick before it. A tick without it is
complete. A removed cell is empty now. The row of `NO_CELL` stands for a tick that changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

DATA, CHANGES = "environment_data", "environment_changes"
SINCE, REMOVED = "since_tick", "removed"
NO_CELL = -1

CELLS = "ticklake.cells"
"""The property of a table that says of which ticks it has the cells."""
ALL = "all"


def cells_in(properties: Mapping[str, str | None]) -> str:
    """Returns of which ticks a table has the cells, from its properties."""
    return properties.get(CELLS) or ALL
