"""The life of a run: what may be recorded after what. Pure values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticklake.contracts import RunCompleted
from ticklake.lives import BEFORE_FIRST, Decision, Life, RunState, Step, bounds_of, decide, life_of, may_write
from ticklake.ticks import TickRange

RUNNING, ENDED, ABANDONED = Life(), Life(RunState.ENDED, 99), Life(RunState.ABANDONED, 99, "restart")
SILENT = Life(RunState.ABANDONED, 99, "silence")


@pytest.mark.parametrize(
    ("life", "cause", "last_tick", "written", "step", "after"),
    [
        (RUNNING, "", None, 99, Step.RECORD, 99),
        (RUNNING, "", 120, 99, Step.RECORD, 120),
        (RUNNING, "", 50, 99, Step.REFUSE, 50),
        (RUNNING, "command", None, 99, Step.RECORD, 99),
        (RUNNING, "command", None, BEFORE_FIRST, Step.RECORD, BEFORE_FIRST),
        (RUNNING, "command", 50, 99, Step.REFUSE, 50),
        (ENDED, "", None, 99, Step.KEEP, 99),
        (ENDED, "", 99, 99, Step.KEEP, 99),
        (ENDED, "", 120, 99, Step.REFUSE, 99),
        (ENDED, "command", None, 99, Step.KEEP, 99),
        (ENDED, "command", None, 120, Step.KEEP, 99),
        (ENDED, "command", 120, 120, Step.REFUSE, 99),
        (ABANDONED, "", None, 99, Step.KEEP, 99),
        (ABANDONED, "", 99, 99, Step.KEEP, 99),
        (ABANDONED, "", 120, 120, Step.REFUSE, 99),
        (ABANDONED, "command", None, 99, Step.KEEP, 99),
        (ABANDONED, "command", None, 50, Step.KEEP, 99),
        (ABANDONED, "command", None, 120, Step.REPLACE, 120),
        (ABANDONED, "command", 120, 99, Step.REPLACE, 120),
        (ABANDONED, "command", 110, 120, Step.REFUSE, 99),
        (ABANDONED, "command", 99, 120, Step.REFUSE, 99),
        (ABANDONED, "command", 50, 99, Step.REFUSE, 99),
        (ABANDONED, "silence", None, 120, Step.KEEP, 99),
        (SILENT, "silence", None, 99, Step.KEEP, 99),
        (SILENT, "silence", None, 120, Step.REPLACE, 120),
        (SILENT, "command", None, 99, Step.REPLACE, 99),
        (SILENT, "restart", None, 50, Step.REPLACE, 99),
        (SILENT, "", None, 120, Step.REPLACE, 120),
        (SILENT, "", 99, 99, Step.REPLACE, 99),
        (SILENT, "", 120, 99, Step.REPLACE, 120),
        (SILENT, "", 50, 50, Step.REFUSE, 99),
        (SILENT, "", 110, 120, Step.REFUSE, 99),
    ],
)
def test_a_wish_to_close_a_run(
    life: Life, cause: str, last_tick: int | None, written: int, step: Step, after: int
) -> None:
    assert decide(life, cause=cause, last_tick=last_tick, written=written) == Decision(step, after)


ticks = st.integers(BEFORE_FIRST, 50)
causes = st.sampled_from(["", "command", "restart", "silence"])
wishes = st.lists(st.tuples(causes, st.none() | ticks, st.integers(0, 20)), max_size=12)


@given(wishes)
def test_an_end_never_changes_and_an_abandoned_run_only_grows(made: list[tuple[str, int | None, int]]) -> None:
    life, written = Life(), BEFORE_FIRST
    for cause, last_tick, more in made:
        written += more
        step, last = decide(life, cause=cause, last_tick=last_tick, written=written)
        assert (step is Step.RECORD) <= (life.state is RunState.RUNNING)
        assert (step is Step.REPLACE) <= (life.state is RunState.ABANDONED)
        if step in (Step.RECORD, Step.REPLACE):
            assert last >= written and last >= (life.last_tick if life.last_tick is not None else BEFORE_FIRST)
            assert not (step is Step.REPLACE and cause == "silence" and life.cause != "silence")
            life = Life(RunState.ABANDONED if cause else RunState.ENDED, last, cause)
            # The same wish again changes nothing.
            assert decide(life, cause=cause, last_tick=last_tick, written=written) == (Step.KEEP, last)
        elif step is Step.KEEP:
            assert last == life.last_tick


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=5), st.sampled_from(["", "restart"]))
def test_a_record_says_the_life_again(bounds: list[tuple[int, int]], cause: str) -> None:
    ranges = [TickRange(*one) for one in bounds]
    end = RunCompleted(simulation_run_id="r", last_tick=60, abandoned_by=cause, never_written=bounds_of(ranges))
    life = life_of(RunCompleted.FromString(end.SerializeToString()))
    state = RunState.ABANDONED if cause else RunState.ENDED
    assert life == Life(state, 60, cause, tuple(ranges))


def test_a_life_in_words() -> None:
    assert [str(one) for one in (RUNNING, ENDED, ABANDONED)] == [
        "running",
        "ended at tick 99",
        "abandoned at tick 99",
    ]
    assert str(Life(RunState.ABANDONED, BEFORE_FIRST)) == "abandoned before its first tick"


def test_a_producer_may_write_again_what_is_before_the_end() -> None:
    assert may_write(RUNNING, [5, 1000])
    assert may_write(ABANDONED, [90, 99])
    assert not may_write(ABANDONED, [90, 100])
    assert not may_write(ENDED, [100, 109])
