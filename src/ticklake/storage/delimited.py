"""The framing of files: a varint length, then a message, again and again."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from ticklake.storage.errors import BadFile

MAX_MESSAGE_BYTES = 256 << 20
"""No message may be longer: about 20 million cells in one tick. A length beyond it is damage, not data."""

BLOCK_BYTES = 1 << 20
_LENGTH_BYTES = 5


def frame(messages: Iterable[bytes]) -> bytes:
    """The messages, each behind its length."""
    return b"".join(piece for message in messages for piece in (varint(len(message)), message))


def split(stream: BinaryIO, key: str) -> Iterator[tuple[list[int], list[bytes]]]:
    """The offsets and bytes of all messages, a block's worth at a time.

    Holds one block and the message that goes on beyond it. `BadFile` where the framing breaks; a length that cannot
    be true is refused before anything is read for it.
    """
    total = _size(stream)
    base, rest = 0, b""
    while block := rest + (more := stream.read(BLOCK_BYTES)):
        offsets, messages, at = _scan(block, base)
        if messages:
            yield offsets, messages
        base, rest = base + at, block[at:]
        length, start = _read_length(rest, 0)
        if length >= 0:
            data = _assemble(stream, rest[start:], length, None if total is None else total - base - start)
            if isinstance(data, str):
                raise BadFile(key=key, offset=base, reason=data)
            yield [base], [data]
            base, rest = base + start + length, b""
        elif not more or len(rest) >= _LENGTH_BYTES:
            raise BadFile(key=key, offset=base, reason="there is no message length here")


def _scan(block: bytes, base: int) -> tuple[list[int], list[bytes], int]:
    """All messages that are whole in a block, and where the first that is not begins. The hot loop of small ticks."""
    offsets: list[int] = []
    messages: list[bytes] = []
    at, size = 0, len(block)
    while at < size:
        length, start = block[at], at + 1
        if length > 0x7F:
            if start < size and block[start] < 0x80:
                length, start = length - 0x80 + (block[start] << 7), at + 2
            else:
                length, start = _read_length(block, at)
        end = start + length
        if end > size or length < 0:
            break
        offsets.append(base + at)
        messages.append(block[start:end])
        at = end
    return offsets, messages, at


def _read_length(block: bytes, at: int) -> tuple[int, int]:
    """A length and where its message starts; -1 where there is none, or not all of it."""
    value = shift = 0
    for byte in block[at : at + _LENGTH_BYTES]:
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    return -1, at


def _assemble(stream: BinaryIO, head: bytes, length: int, left: int | None) -> bytes | str:
    """A message that goes on beyond the block, or why there can be none."""
    if length > MAX_MESSAGE_BYTES:
        return f"a message of {length} bytes is longer than the {MAX_MESSAGE_BYTES} allowed"
    if left is not None and length > left:
        return f"the file ends inside a message of {length} bytes: {left} are there"
    pieces, missing = [head], length - len(head)
    while missing:
        pieces.append(stream.read(min(missing, BLOCK_BYTES)))
        if not pieces[-1]:
            return f"the file ends inside a message of {length} bytes: {length - missing} are there"
        missing -= len(pieces[-1])
    return b"".join(pieces)


def varint(number: int) -> bytes:
    """A number as protobuf writes it."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*encoded, number))


def _size(stream: BinaryIO) -> int | None:
    """The bytes of a stream that can tell."""
    if not stream.seekable():
        return None
    size = stream.seek(0, io.SEEK_END)
    stream.seek(0)
    return size
