"""Columns that several tables share: the tick of each nested item, and coordinates padded to three."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ticklake.world import World

DIMENSIONS = 3


def tick_per_item(ticks: pa.RecordBatch, name: str) -> pa.Array:
    """Returns the tick number of every item of a repeated field, in the order of the flattened items."""
    counts = np.diff(ticks.column(name).offsets.to_numpy())
    return pa.array(np.repeat(ticks.column("tick_number").to_numpy(), counts))


def axes(cell_ids: npt.NDArray[Any], world: World | None) -> list[pa.Array]:
    """Returns x, y and z of each cell; null if the world has fewer dimensions or an unknown shape."""
    known = world.coordinates(cell_ids)[:DIMENSIONS] if world is not None else ()
    missing = [pa.nulls(len(cell_ids), pa.int32())] * (DIMENSIONS - len(known))
    return [*(pa.array(axis.astype(np.int32)) for axis in known), *missing]


def components(vectors: pa.Array) -> list[pa.Array]:
    """Returns the first three components of a column of vectors; null if a vector is shorter or missing."""
    lists = vectors.field("components")
    offsets, values = lists.offsets.to_numpy(), lists.values.to_numpy()
    lengths = np.diff(offsets)
    absent = vectors.is_null().to_numpy(zero_copy_only=False)
    return [_component(offsets[:-1], values, (lengths > axis) & ~absent, axis) for axis in range(DIMENSIONS)]


def _component(starts: npt.NDArray[Any], values: npt.NDArray[Any], present: npt.NDArray[Any], axis: int) -> pa.Array:
    popped = np.zeros(len(starts), np.int32)
    popped[present] = values[starts[present] + axis]
    return pa.array(popped, mask=~present)
