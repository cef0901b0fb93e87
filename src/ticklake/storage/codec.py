"""Encodes numpy columns as `TickData` bytes, and decodes batch files to Arrow record batches."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from ticklake.contracts import FORMAT_VERSION
from ticklake.storage.checks import first_invalid
from ticklake.storage.columns import NO_PARENT, CellColumns, EncodedTick, OrganismColumns, TickColumns
from ticklake.storage.delimited import BLOCK_BYTES
from ticklake.storage.eras.batches import Request, decoded_recordings, schema_of
from ticklake.storage.eras.detection import Era, era_of_file
from ticklake.storage.eras.meaning import (
    OF_RECORDINGS,
    Fields,
    cells_as_structs,
    conformed,
    in_lists,
    offsets_of,
    with_derived,
)
from ticklake.storage.eras.molecules import Cells, any_begins_with_bytes, cells_in
from ticklake.storage.errors import BadBatchFile, BadFile
from ticklake.storage.files import BatchFile, Storage
from ticklake.storage.handlers import handler
from ticklake.storage.projection import project
from ticklake.storage.slices import Chunk, SliceReader
from ticklake.ticks import TickRange
from ticklake.world import MAX_CELLS, World

__all__ = ["NO_PARENT", "CellColumns", "EncodedTick", "OrganismColumns", "TickColumns", "encode_ticks", "read_ticks"]

MAX_CELL_BYTES = 1024
"""The largest allowed size of a cell. Today's fields need at most 44 bytes."""

_ENCODED = frozenset({
    "simulation_run_id", "tick_number", "capture_time_ms", "cells", "rng_state", "format_version",
    "organisms.organism_id", "organisms.parent_id", "organisms.birth_tick", "organisms.program_id", "organisms.energy",
    "organisms.ip", "organisms.is_dead",
})  # fmt: skip
_ROWS_A_CALL = 1 << 20


FORMAT = b"ticklake.format"
"""The metadata of a batch's schema with the format of its file."""


def read_ticks(
    storage: Storage,
    file: BatchFile,
    *,
    ticks: TickRange | None = None,
    skip: Container[int] = (),
    fields: Sequence[str],
    world: World | None = None,
    chunk_bytes: int = 16 << 20,
) -> Iterator[pa.RecordBatch]:
    """Yields the ticks of a slice as record batches with one row for each tick: `tick_number` and the given fields.

    The batches are valid only if the iterator ends without an error, because the checksum is at the end of the file.
    `BadBatchFile` names the file, the byte, the tick and the reason. Memory is bounded by `chunk_bytes` or the largest
    tick. Files of every era of the original give the same columns.
    """
    with storage.open(file.key) as stream:
        try:
            head = stream.read(BLOCK_BYTES)
        except BadFile as error:
            raise BadBatchFile(key=file.key, offset=error.offset, tick=None, reason=error.reason) from error
        era = era_of_file(file.key, head, lambda: storage.open(file.key))
        wanted = Fields(("tick_number", *fields))
        decode = decoded_recordings if era.has_chunks else _decoded_ticks
        for batch in decode(stream, head, Request(file, ticks, skip, era, wanted, world, chunk_bytes)):
            yield batch.replace_schema_metadata({FORMAT: era.value})
            del batch


def _decoded_ticks(stream: BinaryIO, head: bytes, asked: Request) -> Iterator[pa.RecordBatch]:
    file, world, era = asked.file, asked.world, asked.era
    decoder, schema = Decoder(asked.fields.of_whole_ticks(), era, world), schema_of(asked.fields)
    reader = SliceReader(file, asked.ticks, asked.skip)
    for chunk in reader.chunks(stream, asked.chunk_bytes, head):
        batch = decoder.decode(chunk, file.key)
        invalid = first_invalid(batch, world, Era.OWN if reader.has_version else era)
        if invalid:
            row, reason = invalid
            raise BadBatchFile(key=file.key, offset=chunk.offsets[row], tick=chunk.numbers[row], reason=reason)
        yield _with_recordings(batch, schema)
        # Without this, two chunks and two batches are in memory while the next ones are made.
        del chunk, batch


def _with_recordings(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Adds how ticks were recorded, if that is wanted: each of these is complete."""
    if batch.schema.names == schema.names:
        return batch
    nulls = {"since": pa.nulls(len(batch), pa.int64())}
    cells = {name: batch.column("cells") for name in OF_RECORDINGS if name in schema.names}
    known = dict(zip(batch.schema.names, batch.columns, strict=True)) | nulls | cells
    return pa.RecordBatch.from_arrays([known[name] for name in schema.names], schema=schema)


class Decoder:
    """Decodes some fields of ticks whose outer structure has been checked.

    ptars overflows its stack on deeply nested groups, and accepts some malformed bytes that protobuf refuses. So
    protobuf's own parser checks every tick first. It skips the contents of cells, which are most of the bytes: they are
    decoded separately, and a cell is too short for deep nesting.
    """

    def __init__(self, fields: Fields, era: Era = Era.OWN, world: World | None = None) -> None:
        self.schema: pa.Schema = schema_of(fields)
        self._fields, self._era = fields, era
        self._size = world.cells if world else MAX_CELLS
        self._outer = handler(project(fields.paths, frozenset({"cells"}), later=True))
        cells: Any = project(fields.paths, later=True).fields_by_name.get("cells")
        self._cells: Any = handler(cells.message_type) if cells else None
        others = frozenset(path for path in fields.paths if path.partition(".")[0] not in ("cells", "tick_number"))
        self._strict = GetMessageClass(project(others, later=True)) if others else None

    def decode(self, chunk: Chunk, key: str) -> pa.RecordBatch:
        try:
            return self._decode(chunk)
        except (ValueError, DecodeError):
            for tick in chunk.ticks():
                self._decode_alone(tick, key)
            raise

    def _decode_alone(self, tick: Chunk, key: str) -> None:
        """Raises `BadBatchFile` if this tick is the one that cannot be decoded."""
        try:
            self._decode(tick)
        except (ValueError, DecodeError) as error:
            reason = f"the tick is not a TickData message ({error})"
            raise BadBatchFile(key=key, offset=tick.offsets[0], tick=tick.numbers[0], reason=reason) from error

    def _decode(self, chunk: Chunk) -> pa.RecordBatch:
        if self._strict:
            for message in chunk.messages:
                self._strict.FromString(message)
        batch = self._outer.list_to_record_batch(chunk.messages)
        if batch.column("tick_number").to_numpy().tolist() != chunk.numbers:
            raise ValueError("two decoders found different tick numbers")
        if self._cells is not None:
            raw = batch.column("cells")
            batch = self._replaced(
                batch, "cells", self._columns(raw) if self._era is Era.C else self._decode_cells(raw)
            )
        if self._fields.may_be_unknown:
            lists = batch.column("organisms")
            kind = self.schema.field("organisms").type
            organisms = conformed(lists.values, kind.value_type, self._era)
            batch = self._replaced(batch, "organisms", pa.ListArray.from_arrays(lists.offsets, organisms, type=kind))
        return batch

    def _replaced(self, batch: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
        place = self.schema.get_field_index(name)
        return batch.set_column(place, self.schema.field(place), column)

    def _decode_cells(self, raw: pa.ListArray) -> pa.ListArray:
        lengths = pc.binary_length(raw.values)
        longest = pc.max(lengths).as_py() or 0
        if longest > MAX_CELL_BYTES:
            raise ValueError(f"a cell has {longest} bytes, more than {MAX_CELL_BYTES}")
        if self._era is not Era.OWN and any_begins_with_bytes(raw.values):
            raise ValueError(f"it has columns of cells, but the file has the format of era {self._era}")
        cells = self._cells.array_to_record_batch(raw.values).to_struct_array()
        kind = self.schema.field("cells").type
        if self._fields.converts_cells:
            cells = with_derived(cells, kind.value_type, self._era)
        return pa.ListArray.from_arrays(raw.offsets, cells, type=kind)

    def _columns(self, raw: pa.ListArray) -> pa.ListArray:
        """Decodes the cells of era C: at most one message with three columns in each tick."""
        ticks = raw.to_pylist()
        if any(len(tick) > 1 for tick in ticks):
            raise ValueError("a tick has its columns of cells twice")
        parts = [cells_in(tick[0], self._size) if tick else Cells() for tick in ticks]
        kind = self.schema.field("cells").type
        return in_lists([len(part.flat) for part in parts], cells_as_structs(parts, kind.value_type), kind)


def encode_ticks(run_id: str, ticks: Sequence[TickColumns]) -> list[EncodedTick]:
    """Encodes ticks as `TickData` bytes of the current format version. Refuses numbers that do not fit their field."""
    encoded: list[EncodedTick] = []
    for group in _groups(ticks):
        data = handler(project(_ENCODED)).record_batch_to_array(_record_batch(run_id, group))
        encoded.extend(EncodedTick(tick.number, item.as_py()) for tick, item in zip(group, data, strict=True))
    return encoded


def _groups(ticks: Sequence[TickColumns]) -> Iterator[list[TickColumns]]:
    """Yields groups of ticks with a bounded number of rows: one native call each, with offsets of 32 bits."""
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
    schema = handler(project(_ENCODED)).schema()
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
    lists = pa.ListArray.from_arrays(offsets_of(widths), components, type=kind.field("components").type)
    return pa.StructArray.from_arrays([lists], fields=list(kind.fields))


def _lists(parts: Sequence[CellColumns | OrganismColumns], values: pa.StructArray, kind: pa.ListType) -> pa.ListArray:
    return in_lists([len(part) for part in parts], values, kind)


def _int32(parts: list[npt.NDArray[Any]]) -> pa.Array:
    return pa.array(_joined(parts)).cast(pa.int32())


def _joined(parts: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return np.concatenate(parts)
