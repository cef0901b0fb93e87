"""Bytes and Arrow: numpy columns become `TickData` bytes, batch files become record batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import ptars
import pyarrow as pa

from ticklake.contracts import FORMAT_VERSION
from ticklake.storage.columns import NO_PARENT, CellColumns, EncodedTick, OrganismColumns, TickColumns
from ticklake.storage.projection import project

__all__ = ["NO_PARENT", "CellColumns", "EncodedTick", "OrganismColumns", "TickColumns", "encode_ticks"]

_ENCODED = frozenset({
    "simulation_run_id", "tick_number", "capture_time_ms", "cells", "rng_state", "format_version",
    "organisms.organism_id", "organisms.parent_id", "organisms.birth_tick", "organisms.program_id", "organisms.energy",
    "organisms.ip", "organisms.is_dead",
})  # fmt: skip
_ROWS_A_CALL = 1 << 20


@cache
def _handler(fields: frozenset[str]) -> Any:
    descriptor = project(fields)
    return ptars.HandlerPool([descriptor.file]).get_for_message(descriptor)


def encode_ticks(run_id: str, ticks: Sequence[TickColumns]) -> list[EncodedTick]:
    """Each tick as `TickData` bytes of today's format version; a number that does not fit its field is refused."""
    encoded: list[EncodedTick] = []
    for group in _groups(ticks):
        data = _handler(_ENCODED).record_batch_to_array(_record_batch(run_id, group))
        encoded.extend(EncodedTick(tick.number, item.as_py()) for tick, item in zip(group, data, strict=True))
    return encoded


def _groups(ticks: Sequence[TickColumns]) -> Iterator[list[TickColumns]]:
    """Ticks in groups of bounded rows: one native call each, and no offset ever leaves 32 bits."""
    group: list[TickColumns] = []
    rows = 0
    for tick in ticks:
        group.append(tick)
        rows += len(tick.cells) + len(tick.organisms)
        if rows >= _ROWS_A_CALL:
            yield group
            group, rows = [], 0
    if group:
        yield group


def _record_batch(run_id: str, ticks: list[TickColumns]) -> pa.RecordBatch:
    schema = _handler(_ENCODED).schema()
    columns = {
        "simulation_run_id": pa.array([run_id] * len(ticks), pa.string()),
        "tick_number": pa.array([tick.number for tick in ticks], pa.int64()),
        "capture_time_ms": pa.array([tick.capture_time_ms for tick in ticks], pa.int64()),
        "organisms": _organisms([tick.organisms for tick in ticks], schema.field("organisms").type),
        "cells": _cells([tick.cells for tick in ticks], schema.field("cells").type),
        "rng_state": pa.array([tick.rng_state for tick in ticks], pa.binary()),
        "format_version": pa.array([FORMAT_VERSION] * len(ticks), pa.int32()),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _cells(parts: list[CellColumns], kind: pa.ListType) -> pa.ListArray:
    names = [field.name for field in kind.value_type.fields]
    columns = [_int32([getattr(part, name) for part in parts]) for name in names]
    return _lists(parts, pa.StructArray.from_arrays(columns, fields=list(kind.value_type.fields)), kind)


def _organisms(parts: list[OrganismColumns], kind: pa.ListType) -> pa.ListArray:
    parents = _joined([part.parent_id for part in parts])
    columns = {
        "organism_id": _int32([part.organism_id for part in parts]),
        "parent_id": pa.array(parents, mask=parents == NO_PARENT).cast(pa.int32()),
        "birth_tick": pa.array(_joined([part.birth_tick for part in parts])).cast(pa.int64()),
        "program_id": pa.array([program for part in parts for program in part.program_id], pa.string()),
        "energy": _int32([part.energy for part in parts]),
        "ip": _vectors([part.position for part in parts], kind.value_type.field("ip").type),
        "is_dead": pa.array(_joined([part.is_dead for part in parts]), pa.bool_()),
    }
    fields = list(kind.value_type.fields)
    return _lists(parts, pa.StructArray.from_arrays([columns[field.name] for field in fields], fields=fields), kind)


def _vectors(parts: list[npt.NDArray[Any]], kind: pa.StructType) -> pa.StructArray:
    components = _int32([np.ravel(part) for part in parts])
    widths = np.concatenate([np.full(len(part), np.shape(part)[1]) for part in parts])
    lists = pa.ListArray.from_arrays(_offsets(widths), components, type=kind.field("components").type)
    return pa.StructArray.from_arrays([lists], fields=list(kind.fields))


def _lists(parts: Sequence[CellColumns | OrganismColumns], values: pa.StructArray, kind: pa.ListType) -> pa.ListArray:
    return pa.ListArray.from_arrays(_offsets([len(part) for part in parts]), values, type=kind)


def _offsets(lengths: Iterable[int]) -> pa.Array:
    return pa.array(np.concatenate(([0], np.cumsum(np.asarray(lengths, np.int64)))).astype(np.int32))


def _int32(parts: list[npt.NDArray[Any]]) -> pa.Array:
    return pa.array(_joined(parts)).cast(pa.int32())


def _joined(parts: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return np.concatenate(parts)
