"""The ticks that a run records, if stretches of it were sampled more often or less often than the rest."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ticklake.completeness.judging import Expected, Verdict, judge
from ticklake.ticks import Grid, Stretch, TickRange, joined_stretches

STEPS = (1, 2, 5, 10, 20, 100)


@st.composite
def runs(draw: st.DrawFn) -> list[Stretch]:
    """Chunks one after the other. Each begins with the first multiple of its interval after the one before."""
    found, after = [], 0
    for _ in range(draw(st.integers(1, 8))):
        step = draw(st.sampled_from(STEPS))
        start = -(-after // step) * step
        end = start + step * draw(st.integers(0, 6))
        found.append(Stretch(start, end, step))
        after = end + step
    return found


def ticks_of(stretches: list[Stretch]) -> np.ndarray:
    return np.unique([tick for one in stretches for tick in range(one.start, one.end + 1, one.step)]).astype(np.int64)


def expected(stretches: list[Stretch], last: int) -> Expected:
    files = [TickRange(one.start, one.end) for one in stretches]
    return Expected(10, files, last, stretches=joined_stretches(stretches))


@given(runs())
def test_a_table_with_every_recorded_tick_is_complete_and_each_lacking_one_is_missing(stretches: list[Stretch]) -> None:
    recorded = ticks_of(stretches)
    whole = expected(stretches, int(recorded[-1]))
    found = judge(whole, recorded)
    assert (found.missing, found.unexpected, found.ticks) == ([], [], len(recorded))
    assert found.expected_ticks == len(recorded) and found.verdict is Verdict.COMPLETE
    for place in range(len(recorded)):
        lacking = judge(whole, np.delete(recorded, place))
        assert lacking.missing == lacking.waiting == [TickRange(recorded[place], recorded[place])]
        assert lacking.missing_ticks == 1


@given(runs(), st.data())
def test_a_lost_chunk_between_two_of_the_same_interval_is_lost_tick_by_tick(
    stretches: list[Stretch], data: st.DataObject
) -> None:
    step = data.draw(st.sampled_from(STEPS))
    first = -(-(stretches[-1].reach.end + 1) // step) * step
    before = Stretch(first, first + 5 * step, step)
    lost = Stretch(first + 6 * step, first + 6 * step + data.draw(st.integers(0, 9)) * step, step)
    after = Stretch(lost.end + step, lost.end + 3 * step, step)
    found = judge(expected([*stretches, before, after], after.end), ticks_of([*stretches, before, after]))
    assert found.lost == found.missing == [TickRange(lost.start, lost.end)]
    assert found.missing_ticks == len(lost.within(TickRange(0, after.end)))


def test_a_dense_window_over_a_coarse_run_needs_all_its_ticks_and_only_there() -> None:
    stretches = [Stretch(0, 900, 100), Stretch(300, 349, 1)]
    found = judge(expected(stretches, 900), ticks_of(stretches))
    assert (found.missing, found.unexpected, found.expected_ticks) == ([], [], 59)
    coarse = judge(expected(stretches, 900), ticks_of(stretches[:1]))
    assert coarse.waiting == [TickRange(301, 349)]


def test_between_stretches_of_different_intervals_only_ticks_that_both_record_are_missing() -> None:
    grid = Grid(10, [Stretch(0, 100, 10), Stretch(1000, 1900, 100)])
    assert grid.subtract([TickRange(0, 1900)], [TickRange(0, 100), TickRange(1000, 1900)]) == [TickRange(200, 900)]


def test_the_ticks_before_the_first_of_a_fork_are_not_lost_and_other_ticks_are() -> None:
    whole = Expected(10, [TickRange(1000, 1090), TickRange(1200, 1290)], 1290, first_tick=1000)
    found = judge(whole, np.array([*range(1000, 1091, 10), *range(1200, 1291, 10)]))
    assert (found.expected, found.lost) == (TickRange(1000, 1290), [TickRange(1100, 1190)])
    assert Expected(10, [TickRange(1010, 1090)], first_tick=1000).lost == [TickRange(1000, 1000)]
    assert Expected(10, [TickRange(1010, 1090)]).lost == [TickRange(0, 1000)]


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 60)), max_size=6), runs())
def test_ranges_on_a_grid_agree_with_sets_of_ticks(ranges: list[tuple[int, int]], stretches: list[Stretch]) -> None:
    grid = Grid(10, stretches)
    asked = [TickRange(first, first + length) for first, length in ranges]
    on_grid = {tick for tick in range(300) if grid.has(np.array([tick]))[0]}
    wanted = {tick for one in asked for tick in range(one.start, one.end + 1)} & on_grid
    covered = {tick for one in stretches for tick in range(one.start, one.end + 1)} & on_grid
    files = [TickRange(one.start, one.end) for one in stretches]

    def ticks(found: list[TickRange]) -> set[int]:
        return {tick for one in found for tick in grid.ticks_of(one).tolist()}

    assert ticks(grid.merged(asked)) == wanted
    assert ticks(grid.subtract(asked, files)) == wanted - covered
    assert ticks(grid.common(asked, files)) == wanted & covered
    assert grid.count(grid.merged(asked)) == len(wanted)
    assert ticks(grid.ranges_of(np.array(sorted(wanted), np.int64))) == wanted
