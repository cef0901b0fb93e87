"""Batch files with the same cells in the format of era A and in chunks of era E, made from the contract."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import zstandard
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from ticklake.storage.codec import CellColumns, OrganismColumns, TickColumns, encode_ticks
from ticklake.storage.delimited import varint
from ticklake.storage.names import batch_name
from ticklake.storage.zstd import compress
from ticklake.ticks import TickRange

RUN = "20260822-12000000-550e8400-e29b-41d4-a716-446655440000"
Int32s = npt.NDArray[np.int32]


class Shape(NamedTuple):
    """How much there is of everything in a chunk."""

    world: tuple[int, int] = (640, 448)
    recordings: int = 50
    cells: int = 84_000
    listed: int = 30_000
    """Cells that a delta lists. Four of five are empty before and after it, as in real runs."""
    organisms: int = 0


class Cells(NamedTuple):
    flat: Int32s
    molecule: Int32s
    owner: Int32s


class Recorded(NamedTuple):
    """A recording: what its delta lists, and everything that is occupied after it."""

    listed: Cells
    occupied: Cells


def world_in_motion(shape: Shape) -> list[Recorded]:
    rng = np.random.default_rng(1)
    size = shape.world[0] * shape.world[1]
    molecule, owner = np.zeros(size, np.int32), np.zeros(size, np.int32)
    made = []
    for number in range(shape.recordings):
        listed = np.sort(rng.choice(size, shape.listed if number else shape.cells, replace=False)).astype(np.int32)
        there = np.flatnonzero(molecule)
        if number:
            changed = rng.choice(there, min(len(there), shape.listed // 5), replace=False)
            empty = listed[molecule[listed] == 0]
            listed = np.unique(np.concatenate([changed, empty[: shape.listed - len(changed)]])).astype(np.int32)
            born = rng.choice(empty, min(len(empty), len(changed) // 3), replace=False)
            gone = rng.choice(changed, len(born), replace=False)
            filled = np.setdiff1d(np.concatenate([changed, born]), gone)
            molecule[gone], owner[gone] = 0, 0
        else:
            filled = listed
        molecule[filled] = rng.integers(1, 4, len(filled)) << 20 | rng.integers(1, 1 << 14, len(filled))
        owner[filled] = rng.integers(0, 60, len(filled))
        occupied = np.flatnonzero(molecule).astype(np.int32)
        made.append(Recorded(*(Cells(at, molecule[at], owner[at]) for at in (listed, occupied))))
    return made


def write_era_a(root: Path, recorded: list[Recorded]) -> str:
    """Writes a batch file of ticks, with the cells in the order of a hash. Returns its key."""
    order = np.random.default_rng(2)
    ticks = []
    for number, one in enumerate(recorded):
        flat, molecule, owner = (column[order.permutation(len(one.occupied.flat))] for column in one.occupied)
        cells = CellColumns(flat, (molecule >> 20) << 16, molecule & 0x7FFF, owner)
        ticks.append(TickColumns(number, number, cells, OrganismColumns()))
    content = b"".join(_framed(tick.data) for tick in encode_ticks(RUN, ticks))
    return _write(root, "a", content, len(recorded))


def write_chunk(root: Path, recorded: list[Recorded], organisms: int = 0, run: str = RUN, accumulated: int = 0) -> str:
    """Writes a batch file with one chunk. Each `accumulated`-th delta lists all changes since the snapshot."""
    people = [organism(number) for number in range(1, organisms + 1)]
    first, *others = recorded
    last = len(recorded) - 1
    parts = [_bytes(1, run.encode()), _number(3, last), _number(4, len(recorded))]
    snapshot = [_bytes(1, run.encode()), _number(3, 7), *(_bytes(4, one) for one in people)]
    parts.append(_bytes(5, b"".join((*snapshot, _bytes(5, _columns(first.occupied))))))
    touched = np.empty(0, np.int32)
    for number, one in enumerate(others, 1):
        listed, touched = one.listed, np.union1d(touched, one.listed.flat)
        is_accumulated = accumulated > 0 and number % accumulated == 0
        if is_accumulated:
            listed = _at(one.occupied, touched)
        head = _number(1, number) + _number(2, 7) + _number(3, 2 if is_accumulated else 1)
        cells = _bytes(4, _columns(listed))
        parts.append(_bytes(6, b"".join((head, cells, *(_bytes(5, each) for each in people)))))
    return _write(root, "e", _framed(b"".join(parts)), len(recorded))


def _at(occupied: Cells, flat: Int32s) -> Cells:
    """Returns the content of these cells; 0 if they are empty."""
    places = np.minimum(np.searchsorted(occupied.flat, flat), len(occupied.flat) - 1)
    there = occupied.flat[places] == flat
    return Cells(flat, np.where(there, occupied.molecule[places], 0), np.where(there, occupied.owner[places], 0))


def write_large_chunk(root: Path, shape: Shape, size: int) -> str:
    """Writes one chunk of at least `size` bytes, piece by piece. A few deltas repeat. Returns its key."""
    first, *others = world_in_motion(shape._replace(recordings=4))
    cells = [_bytes(4, _columns(one.listed)) for one in others]
    count = -(-size // len(cells[0])) + 1
    head = _bytes(1, RUN.encode()) + _number(3, count - 1) + _number(4, count)
    head += _bytes(5, _bytes(1, RUN.encode()) + _bytes(5, _columns(first.occupied)))
    heads = [_number(1, number) + _number(3, 1) for number in range(1, count)]
    lengths = [len(one) + len(cells[number % len(cells)]) for number, one in enumerate(heads)]
    total = len(head) + sum(1 + len(varint(length)) + length for length in lengths)
    key = _key("large", count)
    (root / key).parent.mkdir(parents=True, exist_ok=True)
    with (root / key).open("wb") as file, zstandard.ZstdCompressor(level=1).stream_writer(file) as stream:
        stream.write(varint(total) + head)
        for number, one in enumerate(heads):
            stream.write(varint(6 << 3 | 2) + varint(lengths[number]) + one + cells[number % len(cells)])
    return key


def organism(number: int) -> bytes:
    """An organism of about 500 bytes, with the numbers since era E."""
    vector = _bytes(1, varint(12) + varint(34))
    head = _number(1, number) + _number(5, 9000) + _bytes(4, b"program") + _bytes(6, vector) + _bytes(7, vector)
    return head + _bytes(11, _number(1, 1 << 20 | number)) * 48 + _number(19, 7) + _number(21, 3) + _number(28, 1 << 60)


def _write(root: Path, name: str, content: bytes, ticks: int) -> str:
    key = _key(name, ticks)
    (root / key).parent.mkdir(parents=True, exist_ok=True)
    (root / key).write_bytes(compress(content))
    return key


def _key(name: str, ticks: int) -> str:
    return f"{RUN}/{name}/{batch_name(TickRange(0, ticks - 1), compressed=True)}"


def _columns(cells: Cells) -> bytes:
    message = _message()()
    for name, column in zip(("a", "b", "c"), cells, strict=True):
        getattr(message, name).extend(column.tolist())
    data: bytes = message.SerializeToString()
    return data


@cache
def _message() -> Any:
    file = FileDescriptorProto(name="bench.proto", syntax="proto3")
    message = file.message_type.add(name="Columns")
    for number, name in enumerate(("a", "b", "c"), 1):
        kind, label = FieldDescriptorProto.TYPE_INT32, FieldDescriptorProto.LABEL_REPEATED
        message.field.add(name=name, number=number, type=kind, label=label)
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName("Columns"))


def _framed(message: bytes) -> bytes:
    return varint(len(message)) + message


def _bytes(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def _number(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value) if value else b""
