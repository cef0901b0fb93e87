"""Walks protobuf messages field by field, without a descriptor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_FIXED = {FIXED64: 8, FIXED32: 4}
_VARINT_BYTES = 10


class BrokenWire(ValueError):
    """Bytes that are not fields of a protobuf message."""


class Field(NamedTuple):
    """A field: its number, its wire type, its value if it is a varint, and where its content begins and ends."""

    number: int
    kind: int
    value: int
    start: int
    end: int


def fields(data: bytes, start: int = 0, end: int | None = None) -> Iterator[Field]:
    """Yields the fields of a message. Raises `BrokenWire` for groups and for lengths that lie."""
    at, end = start, len(data) if end is None else end
    while at < end:
        tag, at = varint(data, at, end)
        number, kind = tag >> 3, tag & 7
        if kind == VARINT:
            value, after = varint(data, at, end)
            yield Field(number, kind, value, at, after)
            at = after
            continue
        if kind == BYTES:
            length, at = varint(data, at, end)
        else:
            length = fixed_length(number, kind)
        if number == 0 or length > end - at:
            raise BrokenWire(f"field {number} has {length} bytes, but its message has only {end - at} more")
        yield Field(number, kind, 0, at, at + length)
        at += length


def fixed_length(number: int, kind: int) -> int:
    """Returns the length of a field of fixed size. Raises `BrokenWire` for any other wire type."""
    if kind not in _FIXED:
        raise BrokenWire(f"field {number} has wire type {kind}")
    return _FIXED[kind]


def varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Returns a number and where it ends. Its lower 64 bits count, as in protobuf."""
    value = shift = 0
    for place in range(at, min(end, at + _VARINT_BYTES)):
        byte = data[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, place + 1
        shift += 7
    raise BrokenWire("a varint has no end")


def signed(value: int) -> int:
    """Returns a varint as an int64."""
    return value - (1 << 64) if value >> 63 else value
