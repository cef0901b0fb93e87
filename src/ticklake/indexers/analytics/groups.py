"""Items grouped by their tick and a value: how many there are, and sums and extremes of their numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]

_DENSE = 8
"""With so many possible groups an item, counting all of them is still faster than a sort."""
_HALF, _LOWER = 16, 0xFFFF
_EXACT = 1 << 53


class Groups:
    """The groups, in the order of ticks and values. So results never depend on how ticks are batched."""

    def __init__(self, places: Ints, codes: Numbers, width: int) -> None:
        """`places` are the ticks of the items as positions, `codes` their values as numbers from 0 to `width`."""
        flat = places * width + codes
        size = (int(places[-1]) + 1) * width if len(places) else 0
        if size <= _DENSE * len(flat):
            there = np.zeros(size, np.bool_)
            there[flat] = True
            keys = np.flatnonzero(there)
            self.of = (np.cumsum(there) - 1)[flat]
            """The group of each item."""
        else:
            keys, self.of = np.unique(flat, return_inverse=True)
        self.places: Ints = keys // max(1, width)
        self.codes: Ints = keys - self.places * width

    def __len__(self) -> int:
        return len(self.places)

    def count(self, which: npt.NDArray[np.bool_] | None = None) -> Ints:
        return np.bincount(self.of if which is None else self.of[which], minlength=len(self))

    def sum(self, values: Numbers) -> Ints:
        """Returns exact sums of int32. `bincount` adds doubles, so halves are added separately if sums may be large."""
        largest = max(abs(int(values.min())), abs(int(values.max()))) if len(values) else 0
        if largest * len(values) < _EXACT:
            return np.bincount(self.of, values, minlength=len(self)).astype(np.int64)
        upper, lower = (
            np.bincount(self.of, part, minlength=len(self)).astype(np.int64)
            for part in (values >> _HALF, values & _LOWER)
        )
        return (upper << _HALF) + lower

    def least(self, values: Numbers) -> Numbers:
        return self._reduced(np.minimum, values, np.iinfo(values.dtype).max)

    def greatest(self, values: Numbers) -> Numbers:
        return self._reduced(np.maximum, values, np.iinfo(values.dtype).min)

    def _reduced(self, function: np.ufunc, values: Numbers, start: int) -> Numbers:
        found = np.full(len(self), start, values.dtype)
        function.at(found, self.of, values)
        return found


def grouped(places: Ints, values: pa.Array) -> tuple[Groups, pa.Array]:
    """Groups items by their tick and value. Also returns the value of each group."""
    encoded = values.dictionary_encode()
    order = pc.sort_indices(encoded.dictionary).to_numpy()
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    groups = Groups(places, ranks[encoded.indices.to_numpy()], len(order))
    return groups, encoded.dictionary.take(pa.array(order)).take(pa.array(groups.codes))
