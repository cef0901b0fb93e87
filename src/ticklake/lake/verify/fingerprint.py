"""Fingerprints of ticks: the number of rows, and a hash of them that does not depend on their order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ticklake.lake.empty import Ticks, ticks_of
from ticklake.lake.order import beginnings

Hashes = npt.NDArray[np.uint64]

_types = pa.types
_BINARY = (_types.is_binary, _types.is_large_binary, _types.is_fixed_size_binary, _types.is_binary_view)
_NULL = np.uint64(0x9E3779B97F4A7C15)


class Fingerprints(NamedTuple):
    """One entry for each tick, ascending. Hashes of a tick are added, so its rows may come in several parts."""

    ticks: Ticks
    rows: Ticks
    hashes: Hashes


def fingerprints(
    rows: pa.RecordBatch | pa.Table, without_rows: Ticks | None = None, ordinal: str = "tick_number"
) -> Fingerprints:
    """Returns the fingerprints of all ticks in these rows, and of the ticks in `without_rows`."""
    if rows.column(ordinal).null_count:
        rows = rows.filter(rows.column(ordinal).is_valid())  # another engine may write rows without a tick
    ticks = ticks_of(rows.column(ordinal))
    hashes = np.zeros(len(ticks), np.uint64)
    for column in rows.columns:
        hashes = _mixed(hashes ^ _codes(column))
    bare = np.empty(0, np.int64) if without_rows is None else without_rows
    return _summed(
        np.concatenate([ticks, bare]),
        np.concatenate([np.ones(len(ticks), np.int64), np.zeros(len(bare), np.int64)]),
        np.concatenate([hashes, np.zeros(len(bare), np.uint64)]),
    )


def merged(parts: Iterable[Fingerprints]) -> Fingerprints:
    """Merges the fingerprints of the parts of a table or file."""
    ticks, rows, hashes = zip(*parts, strict=True) if (parts := list(parts)) else ((), (), ())
    return _summed(
        np.concatenate([np.empty(0, np.int64), *ticks]),
        np.concatenate([np.empty(0, np.int64), *rows]),
        np.concatenate([np.empty(0, np.uint64), *hashes]),
    )


def at(found: Fingerprints, ticks: Ticks) -> tuple[Ticks, Hashes]:
    """Returns row counts and hashes of these ticks, zeros for missing ones."""
    if not len(found.ticks):
        return np.zeros(len(ticks), np.int64), np.zeros(len(ticks), np.uint64)
    place = np.minimum(np.searchsorted(found.ticks, ticks), len(found.ticks) - 1)
    there = found.ticks[place] == ticks
    return np.where(there, found.rows[place], 0), np.where(there, found.hashes[place], np.uint64(0))


def _summed(ticks: Ticks, rows: Ticks, hashes: Hashes) -> Fingerprints:
    if not len(ticks):
        return Fingerprints(ticks, rows, hashes)
    order = np.argsort(ticks, kind="stable")
    ascending = ticks[order]
    starts = beginnings(ascending)
    return Fingerprints(ascending[starts], np.add.reduceat(rows[order], starts), np.add.reduceat(hashes[order], starts))


def _codes(column: pa.Array | pa.ChunkedArray) -> Hashes:
    """Returns a number for each value. Equal values have equal numbers."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        codes = pc.cast(column, pa.int64()).fill_null(0).to_numpy(zero_copy_only=False).view(np.uint64)
    elif pa.types.is_floating(kind):
        codes = pc.cast(column, pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False).view(np.uint64)
    elif pa.types.is_nested(kind):
        codes = _digests(repr(value).encode() for value in column.to_pylist())
    elif any(is_kind(kind) for is_kind in _BINARY):
        codes = _codes_of_words(pc.cast(column, pa.large_binary()))
    else:
        codes = _codes_of_words(pc.cast(pc.cast(column, pa.large_string()), pa.large_binary()))
    if not column.null_count:
        return _mixed(codes)
    return np.where(column.is_null().to_numpy(zero_copy_only=False), _NULL, _mixed(codes))


def _codes_of_words(column: pa.Array | pa.ChunkedArray) -> Hashes:
    """Hashes each distinct word once, because words repeat."""
    words = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    encoded = words.dictionary_encode()
    known = _digests([word.as_py() for word in encoded.dictionary] or [b""])
    codes: Hashes = known[encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)]
    return codes


def _digests(values: Iterable[bytes]) -> Hashes:
    return np.frombuffer(b"".join(hashlib.blake2b(value, digest_size=8).digest() for value in values), np.uint64)


def _mixed(codes: Hashes) -> Hashes:
    """Mixes every bit of the input into every bit of the output (the final step of splitmix64)."""
    codes = (codes ^ (codes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    codes = (codes ^ (codes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (codes ^ (codes >> np.uint64(31))) + _NULL
