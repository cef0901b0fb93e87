"""Which runs an indexer works on: every run gets its turn, the newest one at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ticklake.indexers.turns import LIVE_SECONDS, PLACES, TURN_SECONDS, Turns


def turns_of(*runs: str, places: int = 2) -> Turns:
    turns = Turns(places=places)
    for run in runs:
        turns.request(run)
    return turns


def test_the_newest_run_begins_first_and_the_others_in_the_order_of_their_requests() -> None:
    turns = turns_of("2", "1", "9", "3", places=3)
    assert turns.begin(0.0) == ["9", "2", "1"]
    assert turns.waiting == ["3"]


def test_one_place_stays_free_for_the_newest_run() -> None:
    turns = turns_of("1", places=2)
    assert turns.begin(0.0) == ["1"]
    turns.request("2")
    assert turns.begin(0.0) == ["2"]


def test_a_new_run_gets_a_place_at_once() -> None:
    turns = turns_of("1", "2")
    assert turns.begin(0.0) == ["2", "1"]
    turns.request("3")
    assert turns.begin(0.1) == []
    assert turns.to_end(0.1, {}) == ["1"]
    assert turns.to_end(0.1, {}) == []
    turns.end("1")
    assert turns.begin(0.2) == ["3"]


def test_a_run_without_work_keeps_its_place_until_another_run_needs_it() -> None:
    turns = turns_of("1", "2")
    turns.begin(0.0)
    assert turns.to_end(1e6, {"1": 1e6, "2": 1e6}) == []
    turns.request("0")
    assert turns.to_end(1e6, {"1": 1.0, "2": 1.0}) == ["1"]


def test_the_newest_run_keeps_its_place_for_a_while_without_work() -> None:
    turns = turns_of("1", "2")
    turns.begin(0.0)
    turns.request("0")
    assert turns.to_end(1.0, {"2": LIVE_SECONDS - 1}) == []
    assert turns.to_end(1.0, {"2": LIVE_SECONDS}) == ["2"]


@given(
    st.integers(2, PLACES),
    st.lists(st.integers(0, 9), min_size=1, max_size=80),
    st.lists(st.sampled_from(["request", "idle", "time"]), min_size=80, max_size=80),
)
def test_places_are_bounded_and_every_run_that_waits_gets_its_turn(
    places: int, runs: list[int], acts: list[str]
) -> None:
    turns, now, idle = Turns(places=places), 0.0, dict[str, float]()
    for run, act in zip(runs, acts, strict=False):
        if act == "request":
            turns.request(str(run))
        elif act == "idle":
            idle[str(run)] = float(run * 10)
        else:
            now += run
        _step(turns, now, idle)
        assert len(turns.active) <= places
        assert not set(turns.active) & set(turns.waiting)
    served = set(turns.active)
    asked = set(turns.waiting)
    for _ in range(len(asked) + 1):  # nobody has less work: each step one turn passes
        now += TURN_SECONDS
        served |= set(_step(turns, now, {}))
    assert asked <= served


def _step(turns: Turns, now: float, idle: dict[str, float]) -> list[str]:
    for run in turns.to_end(now, {one: idle[one] for one in turns.active if one in idle}):
        turns.end(run)
        idle.pop(run, None)
    return turns.begin(now)
