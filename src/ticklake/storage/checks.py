"""Checks the values of decoded ticks. Works on whole columns, not on single cells."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ticklake.storage.eras.detection import Era
from ticklake.world import World

_INT32 = 2**31 - 1


class Bounds(NamedTuple):
    """The least and greatest value of a field in a repeated message, and what a value outside means."""

    column: str
    field: str
    low: int
    high: int
    meaning: str


def bounds(world: World | None, era: Era) -> tuple[Bounds, ...]:
    organisms = (
        Bounds("organisms", "organism_id", *_ids(era)),
        Bounds("organisms", "parent_id", 0, _INT32, "a negative parent_id"),
    )
    if era not in (Era.OWN, Era.A, Era.B):
        return organisms  # the decoder of columns has checked the cells
    size = world.cells if world else _INT32 + 1
    bits = 20 if era is Era.B else 16
    of_a = Bounds("cells", "molecule_type", -_INT32 - 1, (1 << 20) - 1, "a molecule_type of era B in a file of era A")
    return (
        Bounds("cells", "flat_index", 0, size - 1, f"a cell outside the world of {size} cells"),
        Bounds(
            "cells",
            "molecule_value",
            -(1 << bits - 1),
            (1 << bits - 1) - 1,
            f"a molecule_value outside signed {bits} bit",
        ),
        Bounds("cells", "owner_id", 0, _INT32, "a negative owner_id"),
        *([of_a] if era is Era.A else []),
        *organisms,
    )


def _ids(era: Era) -> tuple[int, int, str]:
    return (0, _INT32, "a negative organism_id") if era is Era.OWN else (1, _INT32, "an organism_id below 1")


def first_invalid(ticks: pa.RecordBatch, world: World | None, era: Era) -> tuple[int, str] | None:
    """Returns the row of the first invalid tick and the reason, or None if all are valid."""
    found = [problem for bound in bounds(world, era) if (problem := _out_of_bounds(ticks, bound))]
    return min(found) if found else None


def _out_of_bounds(ticks: pa.RecordBatch, bound: Bounds) -> tuple[int, str] | None:
    if bound.column not in ticks.schema.names:
        return None
    lists = ticks.column(bound.column)
    index = lists.type.value_type.get_field_index(bound.field)
    if index < 0:
        return None
    values = lists.values.field(index)
    extremes = pc.min_max(values).as_py()
    if extremes["min"] is None or (extremes["min"] >= bound.low and extremes["max"] <= bound.high):
        return None
    outside = pc.or_(pc.less(values, bound.low), pc.greater(values, bound.high))
    place = int(np.argmax(pc.fill_null(outside, False).to_numpy(zero_copy_only=False)))
    row = int(np.searchsorted(lists.offsets.to_numpy(), place, side="right")) - 1
    return row, f"{bound.meaning}: {values[place].as_py()}"
