"""The framing of files: each message follows its length, which is a varint."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from ticklake.storage.errors import BadFile

MAX_MESSAGE_BYTES = 256 << 20
"""The largest allowed message: about 20 million cells in one tick. A larger length means damage."""

BLOCK_BYTES = 1 << 20
_LENGTH_BYTES = 5


def frame(messages: Iterable[bytes]) -> bytes:
    """Returns all messages, each after its length."""
    return b"".join(piece for message in messages for piece in (varint(len(message)), message))


def split(stream: BinaryIO, key: str, head: bytes = b"") -> Iterator[tuple[list[int], list[bytes]]]:
    """Yields the offsets and bytes of all messages, one block at a time. `head` was read from the stream before.

    Holds one block and the message that continues after it. Raises `BadFile` if the framing is broken. An impossible
    length is refused before its message is read.
    """
    total = _size(stream)
    base, rest = 0, b""
    while block := rest + (more := head or stream.read(BLOCK_BYTES)):
        head = b""
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
            raise BadFile(key=key, offset=base, reason="a message length is expected here")


def _scan(block: bytes, base: int) -> tuple[list[int], list[bytes], int]:
    """Returns the complete messages of a block and where the rest begins. The hot loop of small ticks."""
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
    """Returns a length and the start of its message. The length is -1 if it is missing or incomplete."""
    value = shift = 0
    for byte in block[at : at + _LENGTH_BYTES]:
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    return -1, at


def _assemble(stream: BinaryIO, head: bytes, length: int, left: int | None) -> bytes | str:
    """Returns a message that continues after the block, or the reason why it is not valid."""
    if length > MAX_MESSAGE_BYTES:
        return f"a message of {length} bytes is longer than the {MAX_MESSAGE_BYTES} allowed"
    if left is not None and length > left:
        return f"the file ends inside a message of {length} bytes, after {left} bytes"
    pieces, missing = [head], length - len(head)
    while missing:
        pieces.append(stream.read(min(missing, BLOCK_BYTES)))
        if not pieces[-1]:
            return f"the file ends inside a message of {length} bytes, after {length - missing} bytes"
        missing -= len(pieces[-1])
    return b"".join(pieces)


def varint(number: int) -> bytes:
    """Encodes a number as protobuf does."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*encoded, number))


def _size(stream: BinaryIO) -> int | None:
    """Returns the size of a stream, or None if it is not seekable."""
    if not stream.seekable():
        return None
    at = stream.tell()
    size = stream.seek(0, io.SEEK_END)
    stream.seek(at)
    return size
