"""The same columns from every era: what cells and organisms mean, and null for what an era does not record."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ticklake.contracts import CellState, OrganismState
from ticklake.storage.eras.detection import Era
from ticklake.storage.eras.molecules import Cells, Int32s

_DERIVED: dict[str, tuple[str, ...]] = {
    "state": ("molecule_type", "molecule_value", "marker"),
    "type": ("molecule_type",),
}
"""Columns of cells that no message has, and what they are computed from up to era B."""
_TYPE_BITS, _VALUE_BITS, _MARKER_SHIFT = 0x0FF00000, 0xFFFFF, 28
_FROM_MOLECULE: dict[str, Callable[[Int32s], Any]] = {
    "molecule_type": lambda molecule: molecule & np.int32(_TYPE_BITS),
    "molecule_value": lambda molecule: (molecule << np.int32(12)) >> np.int32(12),
    "marker": lambda molecule: (molecule >> np.int32(_MARKER_SHIFT)) & np.int32(0xF),
    "type": lambda molecule: (molecule >> np.int32(20)) & np.int32(0xFF),
    "state": lambda molecule: molecule,
}
_WHOLE = {
    "cells": [field.name for field in CellState.DESCRIPTOR.fields],
    "organisms": [field.name for field in OrganismState.DESCRIPTOR.fields],
}
_NOT_RECORDED = {
    "marker": (Era.OWN, Era.A),
    "entropy_register": (Era.OWN, Era.A),
    "molecule_marker_register": (Era.OWN, Era.A),
    "genome_hash": (Era.OWN, Era.A, Era.B, Era.C, Era.D),
    "generation": (Era.OWN, Era.A, Era.B, Era.C, Era.D, Era.E),
}
"""Fields without presence, and the eras whose builds do not all record them: there, 0 means unknown."""
EVERY_COLUMN = ("cells", "cells.marker", *(f"cells.{name}" for name in _DERIVED))
OF_RECORDINGS = ("changes", "snapshots")
"""Lists of cells that tell how a tick was recorded: the cells that differ from those of the recording `since`, or all
if there is none; and all cells of a tick without `since`, none of any other. They have every column of cells."""


class Fields:
    """The fields that a caller wants, such as `cells`, `cells.type` or `organisms.energy`."""

    def __init__(self, paths: Iterable[str]) -> None:
        asked = frozenset(paths)
        self.of_recordings = tuple(name for name in OF_RECORDINGS if name in asked)
        self.since = "since" in asked
        self._others = asked - {*OF_RECORDINGS, "since"}
        widened = self.of_recordings and any(path.startswith("cells") for path in asked)
        wanted = {name for path in (*self._others, *(EVERY_COLUMN if widened else ())) for name in _whole(path)}
        self.derived = tuple(name for name in _DERIVED if f"cells.{name}" in wanted)
        derived = {f"cells.{name}" for name in self.derived}
        needed = {f"cells.{name}" for column in self.derived for name in _DERIVED[column]}
        self.paths = frozenset(wanted - derived | needed)
        """Those that messages have."""
        self.converts_cells = bool(self.derived) or "cells.marker" in wanted
        self.may_be_unknown = any(f"organisms.{name}" in wanted for name in _NOT_RECORDED)

    def of_whole_ticks(self) -> Fields:
        """Returns what to read of files in which each tick is complete."""
        return Fields({*self._others, *EVERY_COLUMN}) if self.of_recordings else Fields(self._others)

    def below(self, name: str) -> frozenset[str]:
        return frozenset(path for path in self.paths if path.startswith(f"{name}."))

    def schema(self, of_messages: pa.Schema) -> pa.Schema:
        """Returns the schema of ticks, given that of their messages. It is the same for every era."""
        schema = of_messages
        if self.converts_cells:
            derived = [pa.field(name, pa.int32(), nullable=False) for name in self.derived]
            schema = _with_items(schema, "cells", lambda fields: [*map(_nullable, fields), *derived])
        if self.may_be_unknown:
            schema = _with_items(schema, "organisms", lambda fields: [_nullable(field) for field in fields])
        return schema


def _with_items(schema: pa.Schema, name: str, changed: Callable[[list[pa.Field]], list[pa.Field]]) -> pa.Schema:
    """Returns a schema in which the items of a list have other fields."""
    column = schema.field(name)
    item = column.type.value_field
    kind = pa.list_(item.with_type(pa.struct(changed(list(item.type.fields)))))
    return schema.set(schema.get_field_index(name), column.with_type(kind))


def _nullable(field: pa.Field) -> pa.Field:
    return field.with_nullable(True) if field.name in _NOT_RECORDED else field


def _whole(path: str) -> list[str]:
    return [f"{path}.{name}" for name in _WHOLE[path]] if path in _WHOLE else [path]


def with_derived(cells: pa.StructArray, kind: pa.StructType, era: Era) -> pa.StructArray:
    """Adds the derived columns to cells of the eras up to B, in which each cell is a message."""
    known = {field.name: cells.field(field.name) for field in cells.type.fields}
    if "type" in kind.names:
        known["type"] = pa.array(known["molecule_type"].to_numpy() >> np.int32(20 if era is Era.B else 16))
    if "state" in kind.names:
        kinds = known["molecule_type"].to_numpy()
        bits = np.int32(_VALUE_BITS if era is Era.B else 0xFFFF)
        state = kinds | (known["molecule_value"].to_numpy() & bits)
        if era is Era.B:
            state |= known["marker"].to_numpy() << np.int32(_MARKER_SHIFT)
        known["state"] = pa.array(state)
    if "marker" in kind.names and era is not Era.B:
        if era is Era.A and known["marker"].to_numpy().any():
            raise ValueError("a cell has a marker, as of era B in a file of era A")
        known["marker"] = pa.nulls(len(cells), pa.int32())
    return pa.StructArray.from_arrays([known[field.name] for field in kind.fields], fields=list(kind.fields))


def cells_as_structs(parts: list[Cells], kind: pa.StructType) -> pa.StructArray:
    """Returns the cells of recordings since era C, in which a molecule is one number."""
    flat, molecule, owner = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    known = {"flat_index": lambda: flat, "owner_id": lambda: owner} | {
        name: (lambda of=of: of(molecule)) for name, of in _FROM_MOLECULE.items()
    }
    arrays = [pa.array(known[field.name]()) for field in kind.fields]
    return pa.StructArray.from_arrays(arrays, fields=list(kind.fields))


def conformed(organisms: pa.StructArray, kind: pa.StructType, era: Era) -> pa.StructArray:
    """Returns organisms with these fields: null, or an empty list, for those that the era does not record."""
    arrays = [_column(organisms, field, era) for field in kind.fields]
    return pa.StructArray.from_arrays(arrays, fields=list(kind.fields))


def _column(organisms: pa.StructArray, field: pa.Field, era: Era) -> pa.Array:
    if organisms.type.get_field_index(field.name) < 0:
        if field.nullable:
            return pa.nulls(len(organisms), field.type)
        offsets = pa.array(np.zeros(len(organisms) + 1, np.int32))
        return pa.ListArray.from_arrays(offsets, pa.nulls(0, field.type.value_type), type=field.type)
    column = organisms.field(field.name)
    if era in _NOT_RECORDED.get(field.name, ()):
        return pc.if_else(pc.equal(column, 0), pa.scalar(None, column.type), column)
    return column


def in_lists(lengths: Iterable[int], values: pa.StructArray, kind: pa.ListType) -> pa.ListArray:
    """Returns lists of these lengths."""
    return pa.ListArray.from_arrays(offsets_of(lengths), values, type=kind)


def offsets_of(lengths: Iterable[int]) -> pa.Array:
    """Returns where each list of these lengths begins, and the last one ends."""
    return pa.array(np.concatenate(([0], np.cumsum(np.asarray(lengths, np.int64)))).astype(np.int32))
