"""Walks protobuf messages field by field, without a descriptor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_FIXED = {FIXED64: 8, FIXED32: 4}
_VARINT_BYTES = 10
_LARGEST_NUMBER = (1 << 29) - 1
_BLOCK_BYTES = 1 << 20


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
        if not 0 < number <= _LARGEST_NUMBER:
            raise BrokenWire(f"field {number} does not exist")
        if kind == VARINT:
            value, after = varint(data, at, end)
            yield Field(number, kind, value, at, after)
            at = after
            continue
        if kind == BYTES:
            length, at = varint(data, at, end)
        else:
            length = fixed_length(number, kind)
        if length > end - at:
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


class ByteStream:
    """Reads bytes forward, and holds one block of them."""

    def __init__(self, stream: BinaryIO, head: bytes = b"") -> None:
        """`head` is what was read from the stream before."""
        self._stream = stream
        self._data, self._at = head, 0
        self._base = 0

    @property
    def offset(self) -> int:
        """The number of bytes before the next one."""
        return self._base + self._at

    def at_end(self) -> bool:
        return self._at == len(self._data) and not self._refill()

    def varint(self) -> int:
        value = shift = 0
        for _ in range(_VARINT_BYTES):
            if self._at == len(self._data) and not self._refill():
                break
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFFFFFFFFFFFFFF
            shift += 7
        raise BrokenWire("a varint has no end")

    def take(self, count: int) -> bytes:
        """Returns the next bytes. Raises `BrokenWire` if there are fewer."""
        if count <= len(self._data) - self._at:
            self._at += count
            return self._data[self._at - count : self._at]
        pieces, missing = [self._data[self._at :]], count - len(self._data) + self._at
        self._at = len(self._data)
        while missing:
            if not self._refill():
                raise BrokenWire(f"the file ends inside a field of {count} bytes, after {count - missing} bytes")
            pieces.append(self._data[:missing])
            self._at = len(pieces[-1])
            missing -= self._at
        return b"".join(pieces)

    def skip_to(self, offset: int) -> None:
        """Reads up to an offset. Raises `BrokenWire` if the file ends before it."""
        while offset - self._base > len(self._data):
            self._at = len(self._data)
            if not self._refill():
                raise BrokenWire(f"the file ends {offset - self.offset} bytes before the end of its last message")
        self._at = max(self._at, offset - self._base)

    def drain(self) -> None:
        """Reads to the end, which verifies the checksum of a compressed file."""
        self._at = len(self._data)
        while self._refill():
            self._at = len(self._data)

    def fields(self, end: int) -> Iterator[Field]:
        """Yields the fields of the message that ends at an offset. Skips what the caller has not read of each."""
        while self.offset < end:
            tag = self.varint()
            number, kind = tag >> 3, tag & 7
            if not 0 < number <= _LARGEST_NUMBER:
                raise BrokenWire(f"field {number} does not exist")
            start = self.offset
            if kind == VARINT:
                value = self.varint()
                field = Field(number, kind, value, start, self.offset)
            else:
                length = self.varint() if kind == BYTES else fixed_length(number, kind)
                start = self.offset
                field = Field(number, kind, 0, start, start + length)
            if field.end > end:
                left = max(0, end - field.start)
                raise BrokenWire(f"field {number} has {field.end - field.start} bytes, but its message has {left} more")
            yield field
            self.skip_to(field.end)

    def _refill(self) -> bool:
        """Replaces the block, which has been read. Returns False at the end."""
        self._base += len(self._data)
        self._data, self._at = self._stream.read(_BLOCK_BYTES), 0
        return bool(self._data)
