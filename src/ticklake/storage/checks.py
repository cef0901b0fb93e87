"""Checks the values of decoded ticks. Works on whole columns, not on single cells."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ticklake.storage.eras.detection import Era
from ticklake.world import World

_INT32 = 2**31 - 1
_EARLIEST = -(2**62)
"""Our own producers may count from before tick 0, but an age must fit into 64 bits."""


class Bounds(NamedTuple):
    """The least and greatest value of a field in a repeated message, and what a value outside means."""

    column: str
    field: str
    low: int
    high: int
    meaning: str
    step: int = 1
    """A power of two. Every value is a multiple of it."""


def bounds(world: World | None, era: Era) -> tuple[Bounds, ...]:
    organisms = (
        Bounds("organisms", "organism_id", *_ids(era)),
        Bounds("organisms", "birth_tick", _EARLIEST if era is Era.OWN else 0, 2**63 - 1, "a negative birth_tick"),
        Bounds("organisms", "parent_id", 0, _INT32, "a negative parent_id"),
    )
    if era not in (Era.OWN, Era.A, Era.B):
        return organisms  # the decoder of columns has checked the cells
    size = world.cells if world else _INT32 + 1
    bits = 20 if era is Era.B else 16
    half = 1 << bits - 1
    return (
        Bounds("cells", "flat_index", 0, size - 1, f"a cell outside the world of {size} cells"),
        Bounds("cells", "molecule_value", -half, half - 1, f"a molecule_value outside signed {bits} bit"),
        Bounds("cells", "owner_id", 0, _INT32, "a negative owner_id"),
        *([] if era is Era.OWN else _of_molecules(era, bits)),
        *organisms,
    )


def _of_molecules(era: Era, bits: int) -> list[Bounds]:
    """Returns what tells apart eras A and B, whose cells have the same shape.

    No build had more than 16 types. A build of two days in 2025-12 had values of 24 bits: its types are too large here.
    """
    types = Bounds(
        "cells", "molecule_type", 0, 15 << bits, f"a molecule_type that era {era} does not have", step=1 << bits
    )
    if era is Era.B:
        return [types, Bounds("cells", "marker", 0, 15, "a marker outside 0 to 15")]
    later = ("entropy_register", "molecule_marker_register")
    return [types, *(Bounds("organisms", name, 0, 0, f"{name} of era B in a file of era A") for name in later)]


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
    if extremes["min"] is None:
        return None
    uneven = bound.step > 1 and np.bitwise_or.reduce(values.to_numpy()) & (bound.step - 1)
    if extremes["min"] >= bound.low and extremes["max"] <= bound.high and not uneven:
        return None
    outside = pc.or_(pc.less(values, bound.low), pc.greater(values, bound.high))
    if uneven:
        outside = pc.or_(outside, pc.not_equal(pc.bit_wise_and(values, bound.step - 1), 0))
    place = int(np.argmax(pc.fill_null(outside, False).to_numpy(zero_copy_only=False)))
    row = int(np.searchsorted(lists.offsets.to_numpy(), place, side="right")) - 1
    return row, f"{bound.meaning}: {values[place].as_py()}"
