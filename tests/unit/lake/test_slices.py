"""A flush deals its slices out so that every core gets an equal share of bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticklake.lake.slices import Slice, spread
from ticklake.storage.files import BatchFile
from ticklake.ticks import TickRange


def whole(start: int, end: int, size: int = 1000) -> Slice:
    ticks = TickRange(start, end)
    return Slice(BatchFile("run", f"run/batch_{start}_{end}.pb", ticks, size), ticks)


@st.composite
def files(draw: st.DrawFn) -> tuple[list[Slice], int]:
    step = draw(st.integers(1, 10))
    slices, start = [], 0
    for _ in range(draw(st.integers(1, 20))):
        count = draw(st.integers(1, 50))
        slices.append(whole(start, start + (count - 1) * step, draw(st.integers(1, 10_000))))
        start += count * step
    return slices, step


@given(files(), st.integers(1, 8))
def test_every_tick_goes_to_exactly_one_task(flush: tuple[list[Slice], int], tasks: int) -> None:
    slices, step = flush
    shares = spread(slices, tasks, step)
    assert 1 <= len(shares) <= tasks
    dealt = [
        (piece.number, tick)
        for share in shares
        for piece in share
        for tick in range(piece.slice.ticks.start, piece.slice.ticks.end + 1)
    ]
    wanted = [
        (number, tick) for number, piece in enumerate(slices) for tick in range(piece.ticks.start, piece.ticks.end + 1)
    ]
    assert dealt == wanted


@given(files(), st.integers(1, 16))
def test_no_task_gets_more_than_its_share_and_one_tick(flush: tuple[list[Slice], int], tasks: int) -> None:
    slices, step = flush
    weights = [sum(ticks * weight for ticks, weight in share) for share in weighed(slices, tasks, step)]
    largest = max(piece.weight() / piece.ticks.count(step) for piece in slices)
    assert max(weights) <= sum(weights) / tasks + largest * 1.001


def weighed(slices: list[Slice], tasks: int, step: int) -> list[list[tuple[int, float]]]:
    """Of each piece of each share: how many ticks it has, and how many bytes a tick of its file."""
    return [
        [
            (piece.slice.ticks.count(step), slices[piece.number].weight() / slices[piece.number].ticks.count(step))
            for piece in share
        ]
        for share in spread(slices, tasks, step)
    ]


def test_a_slice_that_starts_off_the_grid_loses_no_tick_when_cut() -> None:
    whole_file = whole(0, 990)
    piece = Slice(whole_file.source, TickRange(5, 990))
    shares = spread([piece], 2, 10)
    ticks = [tick for share in shares for one in share for tick in range(0, 991, 10) if tick in one.slice.ticks]
    assert ticks == list(range(10, 991, 10))
    assert piece.without(range(10, 991, 10)).done(step=10)
    assert not piece.without(range(5, 991, 10)).done(step=10)


@pytest.mark.parametrize(
    "slices",
    [
        pytest.param([whole(0, 9_999, 10**9)], id="one huge file"),
        pytest.param([whole(n * 10, n * 10 + 9, 100) for n in range(1000)], id="a thousand tiny ones"),
        pytest.param([whole(0, 99, 10**6), *(whole(n, n, 10) for n in range(100, 200))], id="one large, many small"),
        pytest.param([*(whole(n, n, 10) for n in range(500)), whole(500, 999, 10**6)], id="many small, one large"),
        pytest.param([whole(n * 100, n * 100 + 99, 10 ** (n % 4 + 3)) for n in range(20)], id="sizes of every kind"),
    ],
)
def test_shares_are_equal_in_bytes(slices: list[Slice]) -> None:
    shares = spread(slices, 4, 1)
    weights = [sum(piece.slice.weight() for piece in share) for share in shares]
    assert len(shares) == 4
    assert max(weights) <= 1.1 * sum(weights) / 4


def test_a_single_tick_is_never_cut() -> None:
    assert [[piece.slice.ticks for piece in share] for share in spread([whole(5, 5)], 4, 1)] == [[TickRange(5, 5)]]


def test_a_slice_is_done_when_every_sampled_tick_is_there() -> None:
    piece = whole(0, 20)
    assert piece.without([0, 10, 20]).done(step=10)
    assert not piece.without([0, 10]).done(step=10)
    assert not piece.without([0, 10, 20]).done(step=5)


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50), st.integers(1, 5))
def test_a_slice_and_what_is_checked_with_it_are_the_whole_file(before: int, count: int, after: int, step: int) -> None:
    file = whole(0, (before + count + after) * step)
    ticks = TickRange(before * step, (before + count) * step)
    one = Slice(file.source, ticks, whole=file.ticks)
    numbers = [tick for part in (one, *one.rest()) for tick in range(part.ticks.start, part.ticks.end + 1)]
    assert sorted(numbers) == list(range(file.ticks.end + 1))
    assert Slice(file.source, ticks).rest() == []
