"""Which runs an indexer works on: every run gets its turn, the newest one at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ticklake.indexers.runs.turns import LIVE_SECONDS, PLACES, TURN_SECONDS, Turns


def turns_of(*runs: str, places: int = 2) -> Turns:
    turns = Turns(places=places)
    for run in runs:
        turns.request(run)
    return turns


def test_the_newest_run_begins_first_then_in_turn_the_longest_waiting_and_the_newest() -> None:
    turns = turns_of("2", "1", "9", "3", "4", places=4)
    assert turns.begin(0.0) == ["9", "2", "4", "1"]
    assert turns.waiting == ["3"]


def test_two_live_runs_are_served_next_to_thousands_of_old_ones_and_these_go_on() -> None:
    old = [f"20240101-000000-{number:05}" for number in range(3000)]
    live = ["20261117-120000-a", "20261117-120001-b"]
    turns, now, served = turns_of(*old, *live, places=PLACES), 0.0, set[str]()
    waited = 0.0
    for _ in range(1000):
        for run in turns.begin(now):
            served.add(run)
        waited = 0.0 if live[0] in turns.active else waited + 1.0
        assert live[1] in turns.active
        assert waited <= TURN_SECONDS
        now += 1.0
        for run in turns.to_end(now, {}):
            turns.end(run)
            turns.request(run)  # all have more work than fits into a turn
    assert len(served & set(old)) > 100
    assert set(old[:100]) <= served


def test_a_run_id_without_a_time_is_not_the_newest() -> None:
    turns = turns_of("test", "20240101-000000-a", "zzz")
    assert turns.begin(0.0) == ["20240101-000000-a", "test"]
    turns.request("20261117-120000-b")
    assert turns.to_end(0.1, {}) == ["20240101-000000-a"]


def test_a_withdrawn_run_does_not_begin() -> None:
    turns = turns_of("1", "2")
    turns.withdraw("2")
    turns.withdraw("3")
    assert turns.begin(0.0) == ["1"]


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
