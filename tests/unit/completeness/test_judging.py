"""The verdict on a table: complete only where every expected tick is there, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticklake.completeness.judging import Coverage, Expected, Verdict, judge, overall
from ticklake.coordination.reconcile import Announced, compare
from ticklake.ticks import TickRange, ranges_of

FILES = [TickRange(0, 990), TickRange(1000, 1990)]


def ticks(*ranges: tuple[int, int], step: int = 10) -> np.ndarray:
    return np.array([tick for first, last in ranges for tick in range(first, last + 1, step)], np.int64)


def of(present: np.ndarray, last_tick: int | None = 1990, flaws: int = 0) -> Coverage:
    return judge(Expected(10, FILES, last_tick), present, flaws)


def test_a_table_with_every_tick_of_a_run_that_ended_is_complete():
    coverage = of(ticks((0, 1990)))
    assert (coverage.verdict, coverage.ticks, coverage.missing) == (Verdict.COMPLETE, 200, [])


def test_a_run_that_has_not_ended_is_running_however_complete_its_tables_are():
    assert of(ticks((0, 1990)), last_tick=None).verdict is Verdict.RUNNING


def test_ticks_missing_at_the_very_end_are_missing():
    coverage = of(ticks((0, 1990)), last_tick=2490)
    assert coverage.verdict is Verdict.INCOMPLETE
    assert (coverage.lost, coverage.waiting) == ([TickRange(2000, 2490)], [])


def test_what_has_a_file_is_waiting_and_what_has_none_is_lost():
    coverage = judge(Expected(10, [TickRange(0, 990), TickRange(2000, 2990)], 2990), ticks((0, 490), (2000, 2990)))
    assert (coverage.waiting, coverage.lost) == ([TickRange(500, 990)], [TickRange(1000, 1990)])
    assert coverage.missing == [TickRange(500, 1990)]


def test_a_tick_between_two_samples_or_behind_the_end_is_unexpected():
    coverage = of(np.sort(np.append(ticks((0, 1990)), [15, 2000])))
    assert coverage.unexpected == [TickRange(15, 15), TickRange(2000, 2000)]
    assert coverage.verdict is Verdict.INCOMPLETE


def test_a_tick_between_two_samples_does_not_stand_for_the_one_it_hides():
    assert of(np.sort(np.append(ticks((0, 990), (1010, 1990)), [1005]))).missing == [TickRange(1000, 1000)]


def test_any_flaw_spoils_a_complete_table():
    assert of(ticks((0, 1990)), flaws=1).verdict is Verdict.INCOMPLETE


def test_a_run_without_ticks_and_one_without_tables():
    assert judge(Expected(10), np.empty(0, np.int64)).missing == []
    assert overall(True, []) is Verdict.INCOMPLETE
    assert overall(False, []) is Verdict.RUNNING


@pytest.mark.parametrize("verdict", [Verdict.INCOMPLETE, Verdict.RUNNING])
def test_a_run_is_complete_only_with_all_of_its_tables(verdict: Verdict):
    assert overall(True, [Verdict.COMPLETE, verdict]) is Verdict.INCOMPLETE
    assert overall(True, [Verdict.COMPLETE, Verdict.COMPLETE]) is Verdict.COMPLETE


def test_a_file_name_that_promises_every_tick_there_is_costs_nothing():
    coverage = judge(Expected(1, [TickRange(0, 2**63 - 1)], None), ticks((0, 5), step=1))
    assert coverage.waiting == [TickRange(6, 2**63 - 1)]


@given(st.sets(st.integers(0, 80)), st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20))), st.integers(1, 50))
def test_covered_waiting_and_lost_make_up_what_is_expected(present: set[int], pairs: list[tuple[int, int]], step: int):
    files = [TickRange(first * step, (first + length) * step) for first, length in pairs]
    coverage = judge(Expected(step, files, 70 * step), np.array(sorted(present), np.int64) * step)
    parts = [coverage.covered, coverage.waiting, coverage.lost]
    listed = [tick for part in parts for one in part for tick in range(one.start, one.end + 1, step)]
    assert sorted(listed) == list(range(0, 70 * step + 1, step))


@given(st.sets(st.integers(0, 300)), st.integers(1, 20))
def test_ranges_hold_exactly_the_ticks_they_are_made_of(numbers: set[int], step: int):
    present = np.array(sorted(numbers), np.int64) * step
    ranges = ranges_of(present, step)
    assert [tick for one in ranges for tick in range(one.start, one.end + 1, step)] == present.tolist()


def test_ranges_are_as_few_as_can_be():
    assert ranges_of(np.array([0, 10, 20, 40], np.int64), 10) == [TickRange(0, 20), TickRange(40, 40)]


def test_storage_and_topic_are_compared_both_ways():
    files = {"r/b": TickRange(10, 19), "r/a": TickRange(0, 9)}
    heard = Announced({"r/b": TickRange(10, 19), "r/gone": TickRange(20, 29)}, 3, 1)
    assert compare(files, heard) == (["r/a"], ["r/gone"], 1)
