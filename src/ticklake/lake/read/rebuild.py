"""The cells of one tick: from `environment_data`, or rebuilt from `environment_changes`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from os import PathLike, fspath

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ticklake.lake.cells import CHANGES, DATA, REMOVED, SINCE
from ticklake.lake.delta import split_run
from ticklake.lake.errors import CellsNotRecorded
from ticklake.lake.order import beginnings
from ticklake.lake.read.catalog import Catalog
from ticklake.lake.read.frames import Frames, OpenTable
from ticklake.ticks import TickRange

_TICK, _CELL = "tick_number", "cell_id"
_STEPS = 64
_ROWS_AT_ONCE = 1 << 20


class BrokenChain(Exception):
    """A tick cannot be rebuilt, because the table lacks one that it builds on."""


def cells_at(
    run: str | PathLike[str],
    tick: int,
    *,
    columns: Sequence[str] | None = None,
    lake: str | PathLike[str] | None = None,
) -> pa.Table:
    """Returns the occupied cells of one tick, as in `environment_data`, ordered by `cell_id`.

    The run is at `LAKE/RUN`, or has that id in `lake`. If `environment_data` lacks the cells of the tick, they are
    rebuilt from `environment_changes`. Raises `CellsNotRecorded` if no table has them.
    """
    root, run_id = (lake, fspath(run)) if lake is not None else split_run(run)
    catalog = Catalog(root)
    catalog.chosen(run_id)
    return found_cells(Frames(catalog), run_id, tick, columns)


def found_cells(frames: Frames, run_id: str, tick: int, columns: Sequence[str] | None = None) -> pa.Table:
    """Returns the cells of one tick. Columns that an older table lacks are left out. Raises `CellsNotRecorded`."""
    tables = frames.tables(run_id)
    reasons = []
    if DATA in tables:
        found = frames.reading(run_id, DATA, lambda table: _stored(table, tick, columns))
        if found is not None:
            return found
        reasons.append(f"{DATA} does not have them")
    if CHANGES in tables:
        try:
            return frames.reading(run_id, CHANGES, lambda table: rebuilt(table, tick, columns))
        except BrokenChain as error:
            reasons.append(str(error))
    raise CellsNotRecorded(tick=tick, run_id=run_id, reason=", and ".join(reasons) or "it has no table of cells")


def _stored(table: OpenTable, tick: int, columns: Sequence[str] | None) -> pa.Table | None:
    """Returns the cells of a tick in `environment_data`; None if it does not have them."""
    names = table.dataset.schema.names
    rows = table.tick(tick, [name for name in columns or names if name in names])
    return rows if rows.num_rows or len(table.empty(TickRange(tick, tick))) else None


def rebuilt(table: OpenTable, tick: int, columns: Sequence[str] | None = None) -> pa.Table:
    """Returns the cells of a tick in `environment_changes`: of each cell the newest row since the last complete tick.

    Holds these rows and a part of the table. Raises `BrokenChain`.
    """
    ticks = chain(table, tick)
    shown = [name for name in table.dataset.schema.names if name not in (SINCE, REMOVED)]
    wanted = [name for name in columns or shown if name in shown]
    read = list(dict.fromkeys((_TICK, _CELL, REMOVED, *wanted)))
    held, waiting = table.dataset.schema.empty_table().select(read), list[pa.Table]()
    for batch in table.dataset.to_batches(columns=read, filter=_between(TickRange(ticks[-1], tick))):
        there = np.isin(batch[_TICK].to_numpy(), ticks)
        waiting.append(pa.Table.from_batches([batch.filter(pa.array(there))]))
        if sum(part.num_rows for part in waiting) > max(_ROWS_AT_ONCE, held.num_rows):
            held, waiting = _newest([held, *waiting]), []
    cells = _newest([held, *waiting])
    cells = cells.filter(pc.invert(cells[REMOVED]))
    cells = cells.set_column(0, _TICK, pa.array(np.full(cells.num_rows, tick, np.int64)))
    return cells.select(wanted)


def _newest(parts: list[pa.Table]) -> pa.Table:
    """Returns the newest row of each cell, ordered by cell."""
    rows = pa.concat_tables(parts)
    cells, ticks = rows[_CELL].to_numpy(), rows[_TICK].to_numpy()
    order = np.lexsort((-ticks, cells))
    return rows.take(pa.array(order[beginnings(cells[order])]))


def chain(table: OpenTable, tick: int) -> list[int]:
    """Returns the ticks that a tick is rebuilt from: itself, the one that it changes, and so on to a complete one."""
    known, ticks = links(table, TickRange(tick, tick)), list[int]()
    at: int | None = tick
    steps = _STEPS
    while at is not None:
        if at not in known and ticks:
            # One read for many steps of about the same length.
            known = links(table, TickRange(at - steps * (ticks[-1] - at), at))
            steps *= 2
        if at not in known:
            missing = f"tick {at}, on which tick {tick} builds" if ticks else f"tick {tick}"
            raise BrokenChain(f"{CHANGES} lacks {missing}")
        ticks.append(at)
        at = known[at]
    return ticks


def states_of_cell(table: OpenTable, ticks: TickRange, cell: int, columns: Sequence[str]) -> tuple[pa.Table, list[int]]:
    """Returns a row for each tick of a range at which a cell is occupied, and the ticks at which its state is known."""
    known = links(table, ticks)
    if known:
        with suppress(BrokenChain):
            known |= links(table, TickRange(chain(table, min(known))[-1], ticks.start))
    span = TickRange(min(known, default=ticks.start), ticks.end)
    there = [name for name in columns if name in table.dataset.schema.names]
    changes = table.look_back(span, [*there, REMOVED], pc.field(_CELL) == cell)
    newest = dict(zip(changes[_TICK].to_pylist(), range(changes.num_rows), strict=True))
    # The place of the row with the state at each tick; None: empty.
    states: dict[int, int | None] = {}
    for tick, since in sorted(known.items()):
        if tick in newest:
            states[tick] = None if changes[REMOVED][newest[tick]].as_py() else newest[tick]
        elif since is None or since in states:
            states[tick] = states[since] if since is not None else None
    shown = {tick: place for tick, place in states.items() if tick in ticks}
    occupied = {tick: place for tick, place in shown.items() if place is not None}
    rows = changes.select(there).take(pa.array(list(occupied.values()), pa.int64()))
    return rows.set_column(there.index(_TICK), _TICK, pa.array(list(occupied), pa.int64())), list(shown)


def links(table: OpenTable, ticks: TickRange) -> dict[int, int | None]:
    """Returns the ticks of a range in `environment_changes`, each with the tick that it changes."""
    return dict(_links(table, ticks))


def _links(table: OpenTable, ticks: TickRange) -> Iterator[tuple[int, int | None]]:
    for batch in table.dataset.to_batches(columns=[_TICK, SINCE], filter=_between(ticks)):
        first = pa.array(beginnings(batch[_TICK].to_numpy()))
        yield from zip(batch[_TICK].take(first).to_pylist(), batch[SINCE].take(first).to_pylist(), strict=True)


def _between(ticks: TickRange) -> pc.Expression:
    return (pc.field(_TICK) >= ticks.start) & (pc.field(_TICK) <= ticks.end)
