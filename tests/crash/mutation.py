"""Bytes made wrong on purpose: somewhere a field of a message, a word of a text, or just a byte is not what it was.

A change inside a message mostly mends the lengths around it: else every one would end at the outermost reader.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from ticklake.storage.delimited import varint

EXTREMES = (0, 1, 0x7F, 0x80, 1 << 28, (1 << 31) - 1, 1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
DEPTHS = (1, 3, 30, 99, 101, 3000)
WORDS = tuple(
    word.encode("utf-8", "surrogatepass")
    for word in (
        *("", "null", "-1", "0", "1e400", "9" * 40, "9" * 5000, "NaN", "true", "a b # c", "\x00", "+= 3", '"x"', "x"),
        *("[]", "{}", "[[1]]", '{"a": 1}', '"', '"""', "}", "{", "]", "[", ",", ":", "=", "${x}", "${?x}", "${vars}"),
        *(
            '"\\ud800"',
            "\ud800",
            "\\",
            "\n",
            "5 parsecs",
            '"topic-read:"',
            'include "x"',
            "1.5",
            "18446744073709551616",
        ),
    )
)


class Field(NamedTuple):
    """Where a field is: its tag, its length (where it has one), its value, its end.

    `around` are the lengths that count it, the innermost first: each its place, and from where to where it counts.
    """

    tag: int
    length: int
    value: int
    end: int
    around: tuple[tuple[int, int, int], ...]


def changed_file(data: bytes, rng: random.Random) -> bytes:
    """Of messages behind their lengths, as batch files and metadata have them."""
    return _blindly(_in_structure(data, fields_of_file(data), rng), rng)


def changed_message(data: bytes, rng: random.Random) -> bytes:
    return _blindly(_in_structure(data, fields_of(data), rng), rng)


def changed_text(data: bytes, rng: random.Random) -> bytes:
    """Words, marks and lines: left out, doubled, exchanged, nested."""
    words = _words(data)
    (start, end), (other, until) = rng.choice(words), rng.choice(words)
    depth = rng.choice(DEPTHS)
    new = (
        rng.choice(WORDS),
        b"",
        data[other:until],
        data[start:end] * 2,
        b"[" * depth + data[start:end] + b"]" * rng.choice((depth, depth - 1)),
        b'{"a": ' * depth + data[start:end] + b"}" * depth,
    )[rng.randrange(6)]
    return _blindly(data[:start] + new + data[end:], rng)


def changed_bytes(data: bytes, rng: random.Random) -> bytes:
    return _a_byte_or_more(data, rng)


def _blindly(data: bytes, rng: random.Random) -> bytes:
    """A third of all inputs is made worse without a thought for what the bytes are."""
    return _a_byte_or_more(data, rng) if rng.random() < 0.33 else data


def _a_byte_or_more(data: bytes, rng: random.Random) -> bytes:
    size = len(data)
    place, until = rng.randrange(size + 1), rng.randrange(size + 1)
    match rng.randrange(6):
        case 0 if place < size:
            return data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1 :]
        case 1:
            return data[:place] + rng.randbytes(rng.randint(1, 8)) + data[place + rng.randrange(9) :]
        case 2:
            return data[:place]
        case 3:
            return data[:place] + data[until : until + rng.randint(1, 60)] + data[place:]
        case 4:
            return data[:place] + data[place + rng.randint(1, 20) :]
        case _:
            return data[:place] + b"\xff" * rng.randint(1, 12) + data[place:]


def _in_structure(data: bytes, fields: Sequence[Field], rng: random.Random) -> bytes:
    if not fields:
        return _a_byte_or_more(data, rng)
    field = fields[rng.randrange(len(fields))]
    start, end, new = rng.choice(_CHANGES)(data, field, fields, rng)
    return _replaced(data, field, start, end, new, honest=rng.random() < 0.8)


def _replaced(data: bytes, field: Field, start: int, end: int, new: bytes, *, honest: bool) -> bytes:
    out, grown = data[:start] + new + data[end:], len(new) - (end - start)
    for place, counted, until in field.around if honest else ():
        length = varint(until - counted + grown)
        out = out[:place] + length + out[counted:]
        grown += len(length) - (counted - place)
    return out


Change = tuple[int, int, bytes]


def _length_that_lies(data: bytes, field: Field, fields: Sequence[Field], rng: random.Random) -> Change:
    own = field.end - field.value
    return field.length, field.value, varint(rng.choice((*EXTREMES, own + 1, max(0, own - 1), 2 * own)))


def _varint_without_end(data: bytes, field: Field, fields: Sequence[Field], rng: random.Random) -> Change:
    return field.length, field.end, b"\x80" * rng.randint(1, 11) + rng.choice((b"", b"\x00", b"\x01"))


def _other_type(data: bytes, field: Field, fields: Sequence[Field], rng: random.Random) -> Change:
    number = rng.choice((0, rng.randint(1, 40), (1 << 29) - 1, 1 << 40))
    return field.tag, field.length, varint(number << 3 | rng.randrange(8))


def _value_beyond(data: bytes, field: Field, fields: Sequence[Field], rng: random.Random) -> Change:
    if field.length == field.value:
        return field.value, field.end, varint(rng.choice(EXTREMES))
    new = rng.choice((b"", b"\xff\xfe", b"\xed\xa0\x80", rng.randbytes(rng.randint(1, 20)), bytes(2000)))
    return field.length, field.end, varint(len(new)) + new


def _nested(data: bytes, field: Field, fields: Sequence[Field], rng: random.Random) -> Change:
    depth = rng.choice(DEPTHS)
    return field.end, field.end, b"\x7b" * depth + b"\x7c" * rng.choice((depth, 0))


def _within_itself(data: bytes, field: Field, fields: Sequence[Field], rng: random.Random) -> Change:
    whole = data[field.tag : field.end]
    for _ in range(rng.choice(DEPTHS[:-1])):
        whole = data[field.tag : field.length] + varint(len(whole)) + whole
    return field.tag, field.end, whole


def _many_times(data: bytes, field: Field, fields: Sequence[Field], rng: random.Random) -> Change:
    return field.end, field.end, data[field.tag : field.end] * rng.choice((1, 2, 20))


def _left_out(data: bytes, field: Field, fields: Sequence[Field], rng: random.Random) -> Change:
    return field.tag, field.end, b""


def _another_in_its_place(data: bytes, field: Field, fields: Sequence[Field], rng: random.Random) -> Change:
    other = fields[rng.randrange(len(fields))]
    return field.tag, field.end, data[other.tag : other.end]


_CHANGES: tuple[Callable[[bytes, Field, Sequence[Field], random.Random], Change], ...] = (
    *(_length_that_lies, _varint_without_end, _other_type, _value_beyond, _nested, _within_itself),
    *(_many_times, _left_out, _another_in_its_place),
)


@lru_cache(maxsize=64)
def fields_of_file(data: bytes) -> list[Field]:
    found: list[Field] = []
    at = 0
    while at < len(data):
        length, start = _read(data, at)
        found += fields_of(data, start, start + length, ((at, start, start + length),))
        at = start + length
    return found


@lru_cache(maxsize=64)
def fields_of(
    data: bytes, start: int = 0, end: int | None = None, around: tuple[tuple[int, int, int], ...] = ()
) -> list[Field]:
    """All fields, those inside others too; none where these bytes are no message."""
    found: list[Field] = []
    end = len(data) if end is None else end
    while start < end:
        tag, at = _read(data, start)
        kind, value, stop = tag & 7, at, end + 1
        if kind == 0:
            _, stop = _read(data, at)
        elif kind == 2:
            length, value = _read(data, at)
            stop = value + length
        if not 0 < tag >> 3 < 32 or stop > end:
            return []
        found.append(Field(start, at, value, stop, around))
        if kind == 2:
            found += fields_of(data, value, stop, ((at, value, stop), *around))
        start = stop
    return found


@lru_cache(maxsize=64)
def _words(data: bytes) -> list[tuple[int, int]]:
    return [found.span() for found in re.finditer(rb'"[^"\n]*"|[\w.-]+|[^\s\w]|\n', data)] or [(0, 0)]


def _read(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    for byte in data[at : at + 10]:
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    return 1 << 64, at
