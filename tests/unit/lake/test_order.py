"""Rows leave a task in the order of their key, each key once, whatever order they came in."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticklake.errors import DuplicateKey, NullInKey
from ticklake.lake.order import beginnings, ordered

KEY = ("tick_number", "cell_id")


def rows(ticks: list[int], cells: list[int]) -> pa.RecordBatch:
    place = list(range(len(ticks)))
    return pa.RecordBatch.from_arrays(
        [pa.array(ticks, pa.int64()), pa.array(cells, pa.int32()), pa.array(place, pa.int32())], names=[*KEY, "place"]
    )


keys = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 2**31 - 1)), unique=True, max_size=50)
dense_keys = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), unique=True, max_size=50)


@given(st.one_of(keys, dense_keys))
def test_rows_come_out_sorted_by_key_and_none_is_lost(pairs: list[tuple[int, int]]) -> None:
    result = ordered(rows([tick for tick, _ in pairs], [cell for _, cell in pairs]), KEY)
    found = list(zip(result.column(0).to_pylist(), result.column(1).to_pylist(), strict=True))
    assert found == sorted(pairs)
    assert [pairs[place] for place in result.column(2).to_pylist()] == found


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=17, max_size=40))
def test_a_key_that_comes_twice_is_refused(pairs: list[tuple[int, int]]) -> None:
    with pytest.raises(DuplicateKey, match=r"tick_number \d, cell_id \d"):
        ordered(rows([tick for tick, _ in pairs], [cell for _, cell in pairs]), KEY)


def test_a_doubled_key_in_a_sparse_world_is_refused() -> None:
    with pytest.raises(DuplicateKey, match="tick_number 7, cell_id 2000000000"):
        ordered(rows([7, 7, 7], [2_000_000_000, 5, 2_000_000_000]), KEY)


def test_keys_of_text_are_sorted_too() -> None:
    batch = pa.RecordBatch.from_pydict({"tick_number": [2, 1, 1], "name": ["a", "z", "b"]})
    assert ordered(batch, ("tick_number", "name")).to_pydict() == {"tick_number": [1, 1, 2], "name": ["b", "z", "a"]}
    with pytest.raises(DuplicateKey, match="tick_number 1, name z"):
        ordered(pa.RecordBatch.from_pydict({"tick_number": [1, 1], "name": ["z", "z"]}), ("tick_number", "name"))


def test_rows_in_order_are_not_copied() -> None:
    batch = rows([0, 0, 10, 20], [1, 2, 1, 0])
    assert ordered(batch, KEY) is batch


def test_a_real_sized_tick_in_hash_order_is_sorted() -> None:
    cells = np.random.default_rng(3).permutation(10_000)[:921]
    result = ordered(rows([4] * 921, cells.tolist()), KEY)
    assert (np.diff(result.column(1).to_numpy()) > 0).all()


INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]


@st.composite
def typed_keys(draw: st.DrawFn) -> tuple[pa.DataType, list[tuple[int, int]]]:
    """Ticks and numbers of any integer type, also the smallest and the largest there are, some of them twice."""
    kind = draw(st.sampled_from(INTEGERS))
    bounds = np.iinfo(kind.to_pandas_dtype())
    low, high = int(bounds.min), int(bounds.max)
    number = st.integers(low, high) | st.sampled_from([low, low + 1, high - 1, high]) | st.integers(0, 5)
    tick = st.integers(0, 3) | st.sampled_from([2**63 - 1, 2**63 - 2, 2**62])
    return kind, draw(st.lists(st.tuples(tick, number), max_size=12))


@given(typed_keys())
def test_keys_of_any_integer_type_are_sorted_and_twins_refused(
    typed: tuple[pa.DataType, list[tuple[int, int]]],
) -> None:
    kind, pairs = typed
    ticks, numbers = pa.array([tick for tick, _ in pairs], pa.int64()), pa.array([one for _, one in pairs], kind)
    batch = pa.RecordBatch.from_arrays([ticks, numbers], names=list(KEY))
    if len(set(pairs)) < len(pairs):
        with pytest.raises(DuplicateKey):
            ordered(batch, KEY)
    else:
        result = ordered(batch, KEY)
        assert list(zip(result.column(0).to_pylist(), result.column(1).to_pylist(), strict=True)) == sorted(pairs)


def test_an_unsigned_key_that_comes_twice_is_refused() -> None:
    numbers = pa.array([5, 3, 5], pa.uint32())
    batch = pa.RecordBatch.from_arrays([pa.array([7, 7, 7], pa.int64()), numbers], names=list(KEY))
    with pytest.raises(DuplicateKey, match="tick_number 7, cell_id 5"):
        ordered(batch, KEY)


@pytest.mark.parametrize("cells", [[None], [1, None], [None, None]])
def test_a_key_without_a_value_is_refused(cells: list[int | None]) -> None:
    batch = pa.RecordBatch.from_pydict({"tick_number": list(range(len(cells))), "cell_id": pa.array(cells, pa.int32())})
    with pytest.raises(NullInKey, match="cell_id"):
        ordered(batch, KEY)


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 2), max_size=9))
def test_beginnings_are_where_another_value_begins(values: list[int]) -> None:
    expected = [place for place, value in enumerate(values) if place == 0 or value != values[place - 1]]
    assert beginnings(np.array(values, np.int64)).tolist() == expected
