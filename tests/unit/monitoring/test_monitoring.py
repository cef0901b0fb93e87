from __future__ import annotations

import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticklake.monitoring import ERROR_HISTORY, LATENCY_BOUNDS, WINDOW_SLOTS, ErrorLog, Monitor, Percentiles, Window


class Clock:
    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def test_a_window_forgets_what_is_older_than_it() -> None:
    clock = Clock()
    window = Window(60, clock)
    window.add(10)
    clock.now += 30
    window.add(5)
    assert window.total == 15
    clock.now += 31
    assert window.total == 5
    clock.now += 1_000_000
    assert window.total == 0
    assert window.rate == 0


def test_the_rate_of_a_young_window_is_over_its_own_age() -> None:
    clock = Clock()
    window = Window(60, clock)
    for _ in range(10):
        window.add(100)
        clock.now += 1
    assert window.rate == pytest.approx(100, rel=0.3)
    for _ in range(120):
        window.add(100)
        clock.now += 1
    assert window.rate == pytest.approx(100, rel=0.1)


def test_a_clock_that_goes_back_changes_nothing() -> None:
    clock = Clock()
    window = Window(10, clock)
    window.add(3)
    clock.now -= 500
    window.add(4)
    assert window.total == 7


@given(st.lists(st.tuples(st.floats(0, 40), st.integers(0, 100)), max_size=60))
def test_a_window_holds_what_a_plain_list_of_the_same_slots_would(steps: list[tuple[float, int]]) -> None:
    clock, width = Clock(), 30 / WINDOW_SLOTS
    window, events = Window(30, clock), []
    for wait, amount in steps:
        clock.now += wait
        window.add(amount)
        events.append((int(clock.now // width), amount))
    now = int(clock.now // width)
    assert window.total == sum(amount for slot, amount in events if slot > now - WINDOW_SLOTS)


@given(st.lists(st.floats(1e-5, 400), min_size=1, max_size=200), st.sampled_from([1, 50, 95, 99, 100]))
def test_a_percentile_is_the_bound_of_the_bucket_the_exact_one_is_in(values: list[float], percent: int) -> None:
    percentiles = Percentiles()
    for value in values:
        percentiles.record(value)
    exact = sorted(values)[max(0, -(-len(values) * percent // 100) - 1)]
    assert percentiles.percentile(percent) == next(bound for bound in LATENCY_BOUNDS if bound >= exact)
    assert percentiles.average == pytest.approx(sum(values) / len(values))


def test_percentiles_forget_old_durations_but_not_their_count() -> None:
    clock = Clock()
    percentiles = Percentiles(60, clock=clock)
    percentiles.record(2.0)
    clock.now += 61
    percentiles.record(0.001)
    assert percentiles.percentile(99) == 0.001
    assert percentiles.count == 2
    assert percentiles.sum == pytest.approx(2.001)


def test_a_duration_above_the_last_bound_is_counted() -> None:
    percentiles = Percentiles()
    percentiles.record(1e9)
    assert percentiles.percentile(50) == LATENCY_BOUNDS[-1]


def test_timed_records_also_what_fails() -> None:
    percentiles = Percentiles()
    with pytest.raises(KeyError), percentiles.timed():
        raise KeyError
    assert percentiles.count == 1


def test_the_error_history_is_bounded_and_keeps_the_newest() -> None:
    errors = ErrorLog()
    for number in range(ERROR_HISTORY + 50):
        errors.record("WRITE_FAILED", OSError(f"no {number}"))
    assert len(errors) == ERROR_HISTORY
    assert [error.message for error in errors][0::99] == ["no 50", "no 149"]
    assert errors.recorded.value == ERROR_HISTORY + 50
    errors.clear()
    assert list(errors) == []


def test_an_error_without_words_still_says_what_it_was() -> None:
    errors = ErrorLog()
    errors.record("WRITE_FAILED", TimeoutError())
    assert next(iter(errors)).message == "TimeoutError()"


def test_a_snapshot_has_every_metric_under_its_name() -> None:
    monitor = Monitor("persistence")
    monitor.counter("ticks_written").add(3)
    monitor.window("write_throughput_per_sec").add(120)
    monitor.percentiles("write_latency").record(0.02)
    monitor.gauge("queued_ticks", lambda: 7)
    monitor.errors.record("WRITE_FAILED", "disk full")
    snapshot = monitor.snapshot()
    assert snapshot["ticks_written"] == 3
    assert snapshot["write_throughput_per_sec"] > 0
    assert snapshot["write_latency_p95_ms"] == pytest.approx(25)
    assert snapshot["write_latency_avg_ms"] == pytest.approx(20)
    assert snapshot["queued_ticks"] == 7
    assert (snapshot["error_count"], snapshot["healthy"]) == (1, True)


def test_asking_again_gives_the_same_metric() -> None:
    monitor = Monitor("m")
    assert monitor.counter("a") is monitor.counter("a")
    assert monitor.window("b") is monitor.window("b")


@pytest.mark.parametrize("name", ["", "ticks-written", "Ticks", "2nd", "a b", "läuft", "a\n"])
def test_a_name_prometheus_would_refuse_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="must have a name"):
        Monitor("m").counter(name)


def test_one_name_is_one_kind_of_metric() -> None:
    monitor = Monitor("m")
    monitor.counter("a")
    with pytest.raises(ValueError, match="another kind"):
        monitor.window("a")


def test_threads_lose_no_count() -> None:
    monitor, switch = Monitor("m"), sys.getswitchinterval()
    counter, window = monitor.counter("a"), monitor.window("b")

    def work() -> None:
        for _ in range(5000):
            counter.add()
            window.add()

    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=work) for _ in range(4)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(switch)
    assert counter.value == window.total == 20_000


def test_memory_does_not_grow_with_what_is_recorded() -> None:
    clock = Clock()
    percentiles, window = Percentiles(60, clock=clock), Window(60, clock)

    def size() -> int:
        return sum(
            map(sys.getsizeof, [percentiles._counts, *percentiles._counts, percentiles._totals, window._amounts])
        )

    before = size()
    for number in range(20_000):
        clock.now += 0.01
        percentiles.record(number % 7)
        window.add()
    assert size() == before
