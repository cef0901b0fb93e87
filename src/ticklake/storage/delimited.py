"""The framing of files: a varint length, then a message, again and again."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from ticklake.errors import BadFile

MAX_MESSAGE_BYTES = 256 << 20
"""No message may be longer: about 20 million cells in one tick. A length beyond it is damage, not data."""

BLOCK_BYTES = 1 << 20
_LENGTH_BYTES = 5


def frame(messages: Iterable[bytes]) -> bytes:
    """The messages, each behind its length."""
    return b"".join(piece for message in messages for piece in (_varint(len(message)), message))


def split(stream: BinaryIO, key: str) -> Iterator[tuple[int, bytes]]:
    """Every message of a stream behind its offset, holding one block and one message at a time.

    `BadFile` where the framing breaks; a length that cannot be true is refused before anything is read for it.
    """
    total = _size(stream)
    block, at, base = b"", 0, 0
    while True:
        if len(block) - at < _LENGTH_BYTES:
            block, base, at = block[at:] + stream.read(BLOCK_BYTES), base + at, 0
            if not block:
                return
        length, start = _read_length(block, at)
        end = start + length
        if length >= 0 and end <= len(block):
            yield base + at, block[start:end]
            at = end
        else:
            data = _assemble(stream, block[start:], length, None if total is None else total - base - start)
            if isinstance(data, str):
                raise BadFile(key=key, offset=base + at, reason=data)
            yield base + at, data
            block, at, base = b"", 0, base + end


def _assemble(stream: BinaryIO, head: bytes, length: int, left: int | None) -> bytes | str:
    """A message that goes on beyond the block, or why there can be none."""
    if length < 0:
        return "there is no message length here"
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


def _read_length(block: bytes, at: int) -> tuple[int, int]:
    """A length and where its message starts; -1 where there is none."""
    value = shift = 0
    for byte in block[at : at + _LENGTH_BYTES]:
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    return -1, at


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*encoded, number))


def _size(stream: BinaryIO) -> int | None:
    if not stream.seekable():
        return None
    size = stream.seek(0, io.SEEK_END)
    stream.seek(0)
    return size
