"""Gap arithmetic: the seed's worked examples with their numbers, and laws that hold for any batches in any order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticklake.coordination.claims import Batch
from ticklake.coordination.gaps import (
    PENDING,
    PERMANENT,
    Gap,
    GapIndex,
    MissingTicks,
    gap_before,
    gap_changes,
    with_ages,
)
from ticklake.ticks import TickRange, common, count, even_on_grid, merged, on_grid, split, subtract


def found(batches: Sequence[TickRange], step: int) -> tuple[int | None, list[Gap]]:
    """The frontier and the gaps after these batches have been found, one after the other."""
    frontier: int | None = None
    gaps: list[Gap] = []
    for moment, ticks in enumerate(batches):
        change = gap_changes(frontier, gaps, ticks, step)
        gaps = [gap for gap in gaps if gap not in change.closed] + change.remaining
        gaps += [Gap(opened, moment) for opened in change.opened]
        frontier = change.frontier
    return frontier, sorted(gaps)


def ticks_of(ranges: Sequence[TickRange], step: int) -> list[int]:
    return [tick for one in ranges for tick in range(one.start, one.end + 1, step)]


# The seed's worked examples


def test_contiguous_batches_of_any_size_leave_no_gap():
    batches = [TickRange(0, 990), TickRange(1000, 1420), TickRange(1430, 2580)]
    assert found(batches, 10) == (2580, [])
    assert gap_before(TickRange(1000, 1420), 990, 10) is None
    assert gap_before(TickRange(1430, 2580), 1420, 10) is None


def test_a_batch_at_2000_after_1420_leaves_1430_to_1990():
    assert gap_before(TickRange(2000, 2990), 1420, 10) == TickRange(1430, 1990)


def test_the_first_batch_of_a_run_that_was_closed_before_leaves_a_gap_from_zero():
    assert gap_before(TickRange(100, 190), -1, 10) == TickRange(0, 90)
    assert gap_before(TickRange(0, 90), -1, 10) is None


def test_a_first_batch_above_zero_leaves_a_gap_before_it():
    assert found([TickRange(1000, 1990)], 10) == (1990, [Gap(TickRange(0, 990), 0)])
    assert found([TickRange(2000, 2990)], 10) == (2990, [Gap(TickRange(0, 1990), 0)])


def test_out_of_order_arrival_is_filled():
    late = [TickRange(1000, 1990), TickRange(2000, 2990), TickRange(3000, 3990), TickRange(0, 990)]
    assert found(late[:3], 10) == (3990, [Gap(TickRange(0, 990), 0)])
    assert found(late, 10) == (3990, [])


def test_a_gap_of_two_batches_is_filled_in_two_steps():
    first, last = TickRange(0, 990), TickRange(3000, 3990)
    assert found([first, TickRange(2000, 2990)], 10)[1] == [Gap(TickRange(1000, 1990), 1)]
    assert found([first, last], 10)[1] == [Gap(TickRange(1000, 2990), 1)]
    assert found([first, last, TickRange(1000, 1990)], 10)[1] == [Gap(TickRange(2000, 2990), 1)]


def test_a_batch_inside_a_gap_leaves_what_is_before_and_after_it():
    pieces = [TickRange(1009, 1490), TickRange(1810, 2990)]
    assert split(TickRange(1009, 2990), TickRange(1500, 1800), 10) == pieces


# Where the seed goes wrong


def test_a_late_batch_below_what_is_expected_leaves_no_inverted_gap():
    assert gap_before(TickRange(0, 990), 1990, 10) is None
    assert found([TickRange(0, 990), TickRange(500, 700)], 10) == (990, [])


def test_what_is_left_of_a_gap_keeps_its_age_and_its_status():
    old = Gap(TickRange(0, 990), 77, PERMANENT)
    change = gap_changes(2000, [old], TickRange(500, 590), 10)
    assert change.remaining == [Gap(TickRange(0, 490), 77, PERMANENT), Gap(TickRange(600, 990), 77, PERMANENT)]


@pytest.mark.parametrize("edge", [TickRange(0, 50), TickRange(90, 200), TickRange(0, 200)])
def test_a_batch_over_the_edge_of_a_gap_leaves_only_what_it_does_not_cover(edge: TickRange):
    left = split(TickRange(40, 100), edge, 10)
    assert ticks_of(left, 10) == [tick for tick in range(40, 101, 10) if tick not in edge]


def test_batches_that_do_not_fit_the_sampling_interval_leave_no_inverted_gap():
    _, gaps = found([TickRange(3, 17), TickRange(28, 31), TickRange(95, 96)], 10)
    assert [gap.ticks for gap in gaps] == [TickRange(41, 85)]


# Laws

steps = st.integers(1, 1000)
grid_ranges = st.tuples(st.integers(0, 60), st.integers(0, 12)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@st.composite
def arrivals(draw: st.DrawFn) -> tuple[list[TickRange], int]:
    """Batches of any size, overlapping or not, in any order, on the grid of any sampling interval."""
    step = draw(steps)
    return [TickRange(first * step, last * step) for first, last in draw(st.lists(grid_ranges, max_size=12))], step


@given(arrivals())
def test_gaps_and_what_is_covered_make_up_what_was_expected_and_do_not_overlap(case: tuple[list[TickRange], int]):
    batches, step = case
    frontier, gaps = found(batches, step)
    covered = set(ticks_of(batches, step))
    missing = ticks_of([gap.ticks for gap in gaps], step)
    expected = set() if frontier is None else set(range(0, frontier + 1, step))
    assert covered | set(missing) == expected
    assert covered.isdisjoint(missing)
    assert len(missing) == len(set(missing))
    assert all(gap.ticks for gap in gaps)


@given(arrivals())
def test_the_order_of_arrival_changes_nothing_but_the_age(case: tuple[list[TickRange], int]):
    batches, step = case
    outcomes = {
        (frontier, tuple(gap.ticks for gap in gaps))
        for order in permutations(batches[:4])
        for frontier, gaps in [found(order, step)]
    }
    assert len(outcomes) == 1


@given(arrivals())
def test_each_missing_range_is_one_gap(case: tuple[list[TickRange], int]):
    batches, step = case
    frontier, gaps = found(batches, step)
    if frontier is not None:
        assert [gap.ticks for gap in gaps] == subtract([TickRange(0, frontier)], batches, step)


@given(arrivals(), st.data())
def test_splitting_is_associative(case: tuple[list[TickRange], int], data: st.DataObject):
    batches, step = case
    whole = TickRange(0, 80 * step)

    def cut_all(order: Sequence[TickRange]) -> list[TickRange]:
        pieces = [whole]
        for batch in order:
            pieces = sorted(rest for piece in pieces for rest in split(piece, batch, step))
        return pieces

    assert cut_all(batches) == cut_all(data.draw(st.permutations(batches)))
    assert cut_all(batches) == subtract([whole], batches, step)


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 60)), max_size=10), steps)
def test_nothing_is_ever_inverted_also_off_the_grid(pairs: list[tuple[int, int]], step: int):
    _, gaps = found([TickRange(first, first + length) for first, length in pairs], step)
    assert all(gap.ticks for gap in gaps)
    assert all(one.ticks.end < other.ticks.start for one, other in pairwise(gaps))


@given(arrivals(), st.lists(grid_ranges, max_size=12))
def test_subtract_and_common_part_the_ticks(case: tuple[list[TickRange], int], pairs: list[tuple[int, int]]):
    ranges, step = case
    others = [TickRange(first * step, last * step) for first, last in pairs]
    mine, theirs = set(ticks_of(ranges, step)), set(ticks_of(others, step))
    assert set(ticks_of(subtract(ranges, others, step), step)) == mine - theirs
    assert set(ticks_of(common(ranges, others, step), step)) == mine & theirs
    assert count(merged(ranges, step), step) == len(mine)


any_ranges = st.lists(st.tuples(st.integers(0, 300), st.integers(-5, 40)), max_size=12).map(
    lambda pairs: [TickRange(first, first + length) for first, length in pairs]
)


@given(any_ranges, any_ranges, st.integers(1, 30))
def test_ranges_of_another_grid_count_only_with_their_sampled_ticks(
    ranges: list[TickRange], others: list[TickRange], step: int
) -> None:
    def sampled(of: Sequence[TickRange]) -> set[int]:
        return {tick for tick in range(0, 400, step) if any(tick in one for one in of)}

    assert ticks_of(merged(ranges, step), step) == sorted(sampled(ranges))
    assert ticks_of(subtract(ranges, others, step), step) == sorted(sampled(ranges) - sampled(others))
    assert ticks_of(common(ranges, others, step), step) == sorted(sampled(ranges) & sampled(others))


@given(any_ranges, any_ranges, st.integers(1, 7), st.integers(1, 30))
def test_a_gap_that_is_put_on_another_grid_keeps_its_age_and_status(
    ranges: list[TickRange], gaps: list[TickRange], old: int, step: int
) -> None:
    before = [Gap(ticks, place, PERMANENT if place % 2 else PENDING) for place, ticks in enumerate(merged(gaps, old))]
    missing = merged(ranges, step)
    known, new = with_ages(missing, before, step)
    for tick in (tick for one in missing for tick in range(one.start, one.end + 1, step)):
        told = [gap[1:] for gap in known if tick in gap.ticks]
        assert told == [gap[1:] for gap in before if tick in gap.ticks]
        assert any(tick in one for one in new) == (not told)
    assert count(new, step) + count([gap.ticks for gap in known], step) == count(missing, step)


def test_the_holes_of_an_earlier_sampling_interval_are_not_joined():
    batch = Batch("b", TickRange(0, 90), "completed", "", MissingTicks((TickRange(1, 9), TickRange(11, 19))))
    assert batch.present_ticks(1) == [TickRange(0, 0), TickRange(10, 10), TickRange(20, 90)]
    assert batch.present_ticks(10) == [TickRange(0, 90)]


def test_ticks_between_two_sampled_ones_are_no_gap():
    assert found([TickRange(0, 993), TickRange(1017, 1050)], 10) == (1050, [])


@given(arrivals(), grid_ranges)
def test_a_file_falls_into_a_gap_if_it_has_one_of_its_ticks(case: tuple[list[TickRange], int], pair: tuple[int, int]):
    batches, step = case
    _, gaps = found(batches, step)
    ticks = TickRange(pair[0] * step, pair[1] * step)
    missing = set(ticks_of([gap.ticks for gap in gaps], step))
    inside = GapIndex(gap.ticks for gap in gaps).gap_of(ticks)
    assert (inside is not None) == bool(missing & set(ticks_of([ticks], step)))


def test_a_range_is_moved_inwards_to_the_grid():
    assert on_grid(TickRange(3, 37), 10) == TickRange(10, 30)
    assert on_grid(TickRange(10, 30), 10) == TickRange(10, 30)
    assert not on_grid(TickRange(11, 19), 10)


@given(st.integers(0, 50), st.integers(0, 40), st.integers(1, 12), st.integers(1, 12))
def test_the_sampled_ticks_of_an_even_run_are_those_on_the_grid(first: int, ticks: int, every: int, step: int) -> None:
    last = first + ticks * every
    found = even_on_grid(first, last, every, step)
    assert ticks_of(found, step) == [tick for tick in range(first, last + 1, every) if tick % step == 0]


def test_the_sampled_ticks_of_a_long_even_run_are_one_range() -> None:
    assert even_on_grid(0, 10**15, 1, 10**6) == [TickRange(0, 10**15)]
    assert even_on_grid(5, 10**15, 5, 10) == [TickRange(10, 10**15)]
    assert even_on_grid(5, 10**15, 10, 10) == []


@pytest.mark.parametrize(
    ("ticks", "text"),
    [(TickRange(0, 1_999), "0–1,999"), (TickRange(1_300, 1_300), "1,300"), (TickRange(5, 4), "none")],
)
def test_a_range_reads_as_two_numbers_one_or_none(ticks: TickRange, text: str) -> None:
    assert str(ticks) == f"{ticks}" == text
