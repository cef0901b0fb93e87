"""The cells of a recording: three packed arrays since era C, and how a delta changes them."""

from __future__ import annotations

import io
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ticklake.storage.delimited import varint as length_prefix
from ticklake.storage.eras.wire import BYTES, ByteStream
from ticklake.storage.handlers import handler
from ticklake.storage.projection import packed_int32s

Int32s = npt.NDArray[np.int32]

_NAMES = {1: "flat_indices", 2: "molecule_data", 3: "owner_ids"}
_NONE: Int32s = np.empty(0, np.int32)
_BLOCK_BYTES, _VARINT_BYTES = 1 << 20, 10
_LARGEST_DENSE, _SPARSE = 1 << 22, 8
_MOST_TOUCHED = 1 << 20
_PACKED_TAG = b"\x0a"


class Cells(NamedTuple):
    """Cells in ascending order of their flat index. All arrays have the same length."""

    flat: Int32s = _NONE
    molecule: Int32s = _NONE
    owner: Int32s = _NONE

    def occupied(self) -> Cells:
        """Returns the cells that are not empty: an empty one has no molecule and no owner."""
        there = (self.molecule | self.owner) != 0
        return self if there.all() else Cells(*(column[there] for column in self))

    def at(self, flat: Int32s) -> Int32s:
        """Returns molecule and owner of these cells, 0 if they are empty."""
        found = np.zeros((2, len(flat)), np.int32)
        if len(self.flat):
            places = np.minimum(np.searchsorted(self.flat, flat), len(self.flat) - 1)
            there = self.flat[places] == flat
            found[:, there] = self.molecule[places[there]], self.owner[places[there]]
        return found

    def changed_by(self, delta: Cells) -> Cells:
        """Returns the occupied cells after a delta. It lists the new content of each cell that it changes."""
        if not len(delta.flat):
            return self
        places = np.searchsorted(self.flat, delta.flat)
        there = np.zeros(len(places), np.bool_)
        inside = places < len(self.flat)
        there[inside] = self.flat[places[inside]] == delta.flat[inside]
        filled = (delta.molecule | delta.owner) != 0
        if there.all() and filled.all():
            return self._with(places, delta)
        new = Cells(*(column[filled] for column in delta))
        kept = np.ones(len(self.flat), np.bool_)
        kept[places[there]] = False
        old = np.flatnonzero(kept)
        # A new cell moves down by the old ones before it that are gone, and up by the new ones before it.
        places = (places - np.cumsum(there) + there)[filled] + np.arange(len(new.flat))
        order = np.empty(len(old) + len(new.flat), np.intp)
        from_old = np.ones(len(order), np.bool_)
        from_old[places] = False
        order[from_old] = old
        order[places] = np.arange(len(self.flat), len(self.flat) + len(new.flat))
        return Cells(*(np.concatenate(pair).take(order) for pair in zip(self, new, strict=True)))

    def _with(self, places: npt.NDArray[Any], new: Cells) -> Cells:
        """Returns the same cells with other content at some places."""
        molecule, owner = self.molecule.copy(), self.owner.copy()
        molecule[places], owner[places] = new.molecule, new.owner
        return Cells(self.flat, molecule, owner)


class State:
    """The cells of a chunk while its deltas are applied, from its snapshot on.

    If a good part of a small world is occupied, two arrays of all its cells are faster than a merge.
    """

    def __init__(self, snapshot: Cells, size: int, *, tracks: bool = False) -> None:
        """With `tracks`, `differing` can be asked for deltas that restart from the snapshot."""
        self._tracks = tracks
        self._touched: list[Int32s] = []
        self._cells = self._snapshot = snapshot.occupied()
        self._dense = None
        if size <= min(_LARGEST_DENSE, _SPARSE * len(self._cells.flat)):
            self._dense = np.zeros((2, size), np.int32)
            self._fill(self._dense, self._cells)

    def apply(self, delta: Cells) -> None:
        if self._tracks:
            self._touch(delta)
        if self._dense is None:
            self._cells = self._cells.changed_by(delta)
        else:
            self._fill(self._dense, delta)

    def restart(self, delta: Cells) -> None:
        """Applies a delta that lists all changes since the snapshot. The deltas before it do not matter."""
        self._cells, self._touched = self._snapshot, []
        if self._dense is not None:
            self._dense[:] = 0
            self._fill(self._dense, self._snapshot)
        self.apply(delta)

    def differing(self, delta: Cells, *, restarts: bool = False) -> Cells:
        """Returns the cells that a delta changes. It may also list others, for example after a resume.

        If it `restarts` from the snapshot, cells that it does not list are as they were there.
        """
        delta = self._with_reverted(delta) if restarts else delta
        there = self._cells.at(delta.flat) if self._dense is None else self._dense[:, delta.flat]
        changes = (there[0] != delta.molecule) | (there[1] != delta.owner)
        return Cells(*(column[changes] for column in delta))

    def _with_reverted(self, delta: Cells) -> Cells:
        others = np.setdiff1d(np.concatenate([_NONE, *self._touched]), delta.flat)
        if not len(others):
            return delta
        reverted = Cells(others, *self._snapshot.at(others))
        order = np.argsort(np.concatenate([delta.flat, others]))
        return Cells(*(np.concatenate(pair)[order] for pair in zip(delta, reverted, strict=True)))

    def _touch(self, delta: Cells) -> None:
        """Remembers which cells have changed since the snapshot."""
        self._touched.append(delta.flat)
        if sum(map(len, self._touched)) > max(_MOST_TOUCHED, 2 * len(self._touched[0])):
            self._touched = [np.unique(np.concatenate(self._touched))]

    def cells(self) -> Cells:
        """Returns the occupied cells now."""
        if self._dense is None:
            return self._cells
        molecule, owner = self._dense
        flat = np.flatnonzero(molecule | owner)
        return Cells(flat.astype(np.int32), molecule[flat], owner[flat])

    @staticmethod
    def _fill(dense: Int32s, cells: Cells) -> None:
        dense[0][cells.flat], dense[1][cells.flat] = cells.molecule, cells.owner


def cells_of(stream: ByteStream, end: int, size: int, *, ascending: bool = True) -> Cells:
    """Decodes the `CellDataColumns` up to an offset. Raises ValueError if it does not fit a world of this size."""
    found: dict[int, Int32s] = {}
    for field in stream.fields(end):
        if field.number not in _NAMES or field.kind != BYTES or field.number in found:
            reason = f"the columns of cells have field {field.number} of wire type {field.kind}, not 1 to 3 once each"
            raise ValueError(reason)
        found[field.number] = _packed_int32s(stream, field.end, len(found[1]) if 1 in found else size)
    cells = Cells(*(found.get(number, _NONE) for number in _NAMES))
    if len({len(column) for column in cells}) > 1:
        lengths = ", ".join(f"{len(column)} {name}" for column, name in zip(cells, _NAMES.values(), strict=True))
        raise ValueError(f"the columns of cells have different lengths: {lengths}")
    if len(cells.flat) and not ascending:
        cells = Cells(*(column[np.argsort(cells.flat, kind="stable")] for column in cells))
    _check(cells, size)
    return cells


def _packed_int32s(stream: ByteStream, end: int, most: int) -> Int32s:
    """Decodes packed varints, block by block, so that their bytes and their values are never all in memory."""
    decoder, parts, rest, count = handler(packed_int32s()), [], b"", 0
    while stream.offset < end:
        block = rest + stream.take(min(end - stream.offset, _BLOCK_BYTES))
        whole = len(block) if stream.offset == end else _last_end(block)
        message = _PACKED_TAG + length_prefix(whole) + block[:whole]
        parts.append(decoder.list_to_record_batch([message]).column(0).values.to_numpy())
        count += len(parts[-1])
        if count > most:
            raise ValueError(f"a column of cells has {count} entries, more than the {most} cells")
        rest = block[whole:]
    return parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else _NONE


def _last_end(block: bytes) -> int:
    """Returns where the last whole varint of a block ends."""
    for place in range(len(block) - 1, max(-1, len(block) - 1 - _VARINT_BYTES), -1):
        if block[place] < 0x80:
            return place + 1
    raise ValueError("a packed number is too long")


def _check(cells: Cells, size: int) -> None:
    index = cells.flat
    if not len(index):
        return
    disorder = np.flatnonzero(index[1:] <= index[:-1])
    if len(disorder):
        later, earlier = index[disorder[0] + 1], index[disorder[0]]
        raise ValueError(f"flat indices must ascend, but {later} comes after {earlier}")
    if index[0] < 0 or index[-1] >= size:
        outside = index[0] if index[0] < 0 else index[-1]
        raise ValueError(f"a cell outside the world of {size} cells: {outside}")
    if cells.owner.min() < 0:
        raise ValueError(f"a negative owner_id: {cells.owner.min()}")


def cells_in(message: bytes, size: int) -> Cells:
    """Returns the occupied cells of a tick of era C. They are in any order."""
    return cells_of(ByteStream(io.BytesIO(), message), len(message), size, ascending=False).occupied()


def delta_in(message: bytes, size: int) -> Cells:
    """Returns the cells that a delta lists."""
    return cells_of(ByteStream(io.BytesIO(), message), len(message), size)


def any_begins_with_bytes(cells: pa.BinaryArray) -> bool:
    """Returns whether the first field of any of these messages is length-delimited. Cells have only numbers."""
    _, offsets, data = cells.buffers()
    starts = np.frombuffer(offsets, np.int32)[cells.offset : cells.offset + len(cells) + 1]
    first = starts[:-1][np.diff(starts) > 0]
    return bool(data is not None and len(first) and (np.frombuffer(data, np.uint8)[first] & 7 == BYTES).any())
