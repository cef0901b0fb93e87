"""The world of a run at a tick: a binary frame, the history of a cell, the life of an organism."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ticklake.lake.cells import CHANGES
from ticklake.lake.cells import DATA as CELLS
from ticklake.lake.errors import CellsNotRecorded, TableNotInRun
from ticklake.lake.read import Frames, OpenTable, found_cells, states_of_cell
from ticklake.ticks import TickRange, hull
from ticklake.web.rendering import chosen_run, explained, not_in_lake, nothing, page, site_of, whole_number
from ticklake.world import World

ORGANISMS = "organism_data"
HEADER = struct.Struct("<4sIIIq")
MAGIC = b"TLF2"
NO_CELLS, NO_ORGANISMS = 1, 2
"""Flags of a frame: the cells or organisms of the tick are not in a table. An empty world has no flag."""

SAMPLES = 400
CHILDREN = 50


@explained
def show_world(request: Request) -> Response:
    run_id, frames = chosen_run(request), site_of(request).frames
    if run_id is None or frames is None:
        return nothing(request, "World", run_id, hint="ticklake demo")
    world, ticks = frames.world(run_id), ticks_of(frames, run_id)
    if world is None or ticks is None:
        return nothing(request, "World", run_id, hint=f"ticklake index {run_id} --storage DIR --lake DIR")
    if len(world.shape) > 2:
        return nothing(request, "World", run_id, "Only two-dimensional worlds are drawn.")
    width, height = (*world.shape, 1)[:2]
    facts = {"width": width, "height": height, "first": ticks.start, "last": ticks.end, "step": world.sampling_interval}
    return page(request, "world.html", run_id=run_id, world=facts)


def show_frame(request: Request) -> Response:
    frames, run_id = _frames(request, CELLS, CHANGES)
    data = frame(frames, run_id, _number(request, "tick"))
    return Response(data, media_type="application/octet-stream")


def show_cell(request: Request) -> Response:
    frames, run_id = _frames(request, CELLS, CHANGES)
    return JSONResponse(history(frames, run_id, _number(request, "cell"), _number(request, "tick")))


def show_organism(request: Request) -> Response:
    frames, run_id = _frames(request, ORGANISMS)
    return JSONResponse(life(frames, run_id, _number(request, "organism"), _number(request, "tick")))


def show_ticks(request: Request) -> Response:
    """Answers with the current ticks of the table, for the slider."""
    frames, run_id = _frames(request)
    ticks = ticks_of(frames, run_id)
    return JSONResponse({"first": ticks.start, "last": ticks.end} if ticks else {"first": None, "last": None})


def ticks_of(frames: Frames, run_id: str) -> TickRange | None:
    tables = [table for table in (CELLS, CHANGES) if table in frames.tables(run_id)]
    found = [ticks for table in tables if (ticks := frames.facts(run_id, table).ticks) is not None]
    return hull(found) if found else None


def frame(frames: Frames, run_id: str, tick: int) -> bytes:
    """Returns a header with flags, then these columns: cells' id, owner; organisms' id, x, y, energy; cells' value,
    type; whether organisms are dead."""
    columns = ("cell_id", "owner_id", "molecule_value", "molecule_type", "type")
    cells, has_cells = _cells(frames, run_id, tick, columns)
    found, has_organisms = _organisms(frames, run_id, tick)
    flags = (0 if has_cells else NO_CELLS) + (0 if has_organisms else NO_ORGANISMS)
    parts = [
        HEADER.pack(MAGIC, cells.num_rows, found.num_rows, flags, tick),
        *(_packed(cells, name, "<i4") for name in ("cell_id", "owner_id")),
        *(_packed(found, name, "<i4") for name in ("organism_id", "x", "y", "energy")),
        _packed(cells, "molecule_value", "<i4"),
        np.array(_kinds(cells), "<i2").tobytes(),
        _packed(found, "is_dead", "u1"),
    ]
    return b"".join(parts)


def history(frames: Frames, run_id: str, cell: int, tick: int) -> dict[str, Any]:
    """Returns the content of a cell at the last ticks. `changes` also lists when it was empty or unknown."""
    step, source = _step(frames, run_id), CHANGES if CHANGES in frames.tables(run_id) else CELLS
    span = frames.reach(run_id, source, tick, step, SAMPLES)
    columns = ("tick_number", "molecule_type", "molecule_value", "owner_id", "type")

    def read(table: OpenTable) -> tuple[pa.Table, list[int]]:
        if source == CHANGES:
            return states_of_cell(table, span, cell, columns)
        there = [name for name in columns if name in table.dataset.schema.names]
        return table.look_back(span, there, pc.field("cell_id") == cell), table.has(span).tolist()

    found, ticks = frames.reading(run_id, source, read)
    rows = found.select(columns[:-1]).to_pylist()
    for row, kind in zip(rows, _kinds(found), strict=True):
        row["molecule_type"] = int(kind)
    changes = changed(rows, ticks, span, step)
    return {"cell": cell, "from": span.start, "to": span.end, "rows": rows, "changes": changes}


def changed(rows: list[dict[str, Any]], ticks: list[int], span: TickRange, step: int) -> list[dict[str, Any]]:
    """Returns the first tick of each state of a cell: `occupied`, `empty`, or `unknown` if the ticks are missing."""
    there = {row["tick_number"]: row for row in rows}
    found: list[dict[str, Any]] = []
    before = span.start - 1
    for tick in [*ticks, None]:
        next_sampled = (before // step + 1) * step
        if next_sampled <= (span.end if tick is None else tick - 1):
            found.append({"tick_number": next_sampled, "state": "unknown"})
        if tick is None:
            break
        state = {"state": "occupied", **there[tick]} if tick in there else {"state": "empty", "tick_number": tick}
        if not found or state | {"tick_number": 0} != found[-1] | {"tick_number": 0}:
            found.append(state)
        before = tick
    return found


def life(frames: Frames, run_id: str, organism: int, tick: int) -> dict[str, Any]:
    """Returns the last ticks of an organism, its parent, and its children in these ticks.

    Energy and age are from the tick at which it was `last_seen`.
    """
    span = frames.reach(run_id, ORGANISMS, tick, _step(frames, run_id), SAMPLES)
    columns = ("tick_number", "x", "y", "energy", "age", "parent_id", "birth_tick", "program_id", "is_dead")

    def read(table: OpenTable) -> tuple[list[dict[str, Any]], pa.Table, bool]:
        own = table.look_back(span, columns, pc.field("organism_id") == organism).to_pylist()
        born = table.look_back(span, ("tick_number", "organism_id"), pc.field("parent_id") == organism)
        return own, born, bool(len(table.has(TickRange(tick, tick))))

    rows, born, recorded = frames.reading(run_id, ORGANISMS, read)
    children = sorted(set(born["organism_id"].to_pylist()))
    last = rows[-1] if rows else {}
    return {
        "organism": organism,
        "from": span.start,
        "to": span.end,
        "state": _state(last, tick, recorded),
        "last_seen": last.get("tick_number"),
        **{name: last.get(name) for name in ("energy", "age", "parent_id", "birth_tick", "program_id")},
        "children": children[:CHILDREN],
        "more_children": max(0, len(children) - CHILDREN),
        "path": [(row["tick_number"], row["x"], row["y"] or 0, row["energy"]) for row in rows],
    }


def _state(last: dict[str, Any], tick: int, recorded: bool) -> str:
    """Returns the state at a tick: `alive`, `dead`, `gone` (no row any more, in runs that record only the living),
    `absent` (no row in the ticks that were read), or `unknown` if the table lacks the tick."""
    if last.get("is_dead"):
        return "dead"
    if last.get("tick_number") == tick:
        return "alive"
    if not recorded:
        return "unknown"
    return "gone" if last else "absent"


def _at(frames: Frames, run_id: str, table: str, tick: int, columns: Sequence[str]) -> tuple[pa.Table, bool]:
    """Returns the rows of a tick and whether the table has the tick, which may be empty."""

    def read(opened: OpenTable) -> tuple[pa.Table, bool]:
        rows = opened.tick(tick, [name for name in columns if name in opened.dataset.schema.names])
        return rows, bool(rows.num_rows or len(opened.empty(TickRange(tick, tick))))

    return frames.reading(run_id, table, read)


def _cells(frames: Frames, run_id: str, tick: int, columns: Sequence[str]) -> tuple[pa.Table, bool]:
    try:
        return found_cells(frames, run_id, tick, columns), True
    except CellsNotRecorded:
        return pa.table({name: pa.array([], pa.int32()) for name in columns}), False


def _organisms(frames: Frames, run_id: str, tick: int) -> tuple[pa.Table, bool]:
    names = ("organism_id", "x", "y", "energy", "is_dead")
    if ORGANISMS not in frames.tables(run_id):
        return pa.table({name: pa.array([], pa.int32()) for name in names}), False
    return _at(frames, run_id, ORGANISMS, tick, names)


def _kinds(cells: pa.Table) -> npt.NDArray[Any]:
    """Returns the number of each cell's type. Rows of the first schema have no column for it: they are of era A."""
    kinds = _numbers(cells, "molecule_type") >> 16
    if "type" not in cells.column_names:
        return kinds
    known = cells["type"].is_valid().to_numpy()
    return np.where(known, _numbers(cells, "type"), kinds)


def _numbers(table: pa.Table, name: str) -> npt.NDArray[Any]:
    return np.asarray(table[name].cast(pa.int32()).combine_chunks().fill_null(0))


def _packed(table: pa.Table, name: str, kind: str) -> bytes:
    return _numbers(table, name).astype(kind).tobytes()


def _step(frames: Frames, run_id: str) -> int:
    world: World | None = frames.world(run_id)
    return world.sampling_interval if world is not None else 1


def _frames(request: Request, *needed: str) -> tuple[Frames, str]:
    """Returns the run of the request. Raises if it has none of the tables that are needed."""
    frames, run_id = site_of(request).frames, request.path_params["run"]
    tables = frames.tables(run_id) if frames is not None else []
    if frames is None or not tables:
        raise not_in_lake(request, run_id)
    if needed and not any(table in tables for table in needed):
        raise TableNotInRun(table=needed[0], run_id=run_id, found=", ".join(tables))
    return frames, run_id


def _number(request: Request, name: str) -> int:
    return whole_number(name, request.path_params.get(name) or request.query_params.get(name, ""))


ROUTES = [
    Route("/world", show_world),
    Route("/api/runs/{run}/frame", show_frame),
    Route("/api/runs/{run}/ticks", show_ticks),
    Route("/api/runs/{run}/cells/{cell}", show_cell),
    Route("/api/runs/{run}/organisms/{organism}", show_organism),
]
