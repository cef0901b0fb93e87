from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ticklake.errors import QueueClosed, TicksOutOfOrder
from ticklake.services.queue import TickQueue
from ticklake.storage.columns import EncodedTick

SOON = 10.0
NEVER = 3600.0


def tick(number: int, size: int = 10) -> EncodedTick:
    return EncodedTick(number, bytes(size))


def filled(count: int, size: int = 10) -> TickQueue:
    queue = TickQueue()
    for number in range(count):
        queue.put(tick(number, size))
    return queue


def numbers(run: list[EncodedTick]) -> list[int]:
    return [tick.number for tick in run]


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def test_a_full_batch_is_handed_over_at_once() -> None:
    queue = filled(7)
    assert numbers(queue.pop(5, NEVER)) == [0, 1, 2, 3, 4]
    assert len(queue) == 2


def test_a_batch_closes_when_its_oldest_tick_is_as_old_as_the_timeout() -> None:
    now = [100.0]
    queue = TickQueue(clock=lambda: now[0])
    queue.put(tick(0))
    now[0] += 5
    assert numbers(queue.pop(1000, timeout=5)) == [0]


def test_nothing_comes_out_of_an_empty_queue_after_the_timeout() -> None:
    assert TickQueue().pop(10, timeout=0.01) == []


def test_a_batch_is_bounded_by_bytes_but_has_at_least_one_tick() -> None:
    queue = filled(5, size=100)
    assert numbers(queue.pop(1000, NEVER, max_bytes=250)) == [0, 1]
    assert numbers(queue.pop(1000, NEVER, max_bytes=50)) == [2]


def test_a_full_queue_makes_the_producer_wait_until_there_is_room(pool: ThreadPoolExecutor) -> None:
    queue = TickQueue(max_ticks=3)
    for number in range(3):
        assert queue.put(tick(number))
    assert not queue.put(tick(3), timeout=0.01)
    waiting = pool.submit(queue.put, tick(3))
    assert numbers(queue.pop(2, NEVER)) == [0, 1]
    assert waiting.result(SOON)
    assert numbers(queue.pop(2, NEVER)) == [2, 3]


def test_a_waiting_producer_closes_a_batch_that_could_not_grow_any_more(pool: ThreadPoolExecutor) -> None:
    queue = TickQueue(max_bytes=100)
    queue.put(tick(0, 80))
    waiting = pool.submit(queue.put, tick(1, 80))
    assert numbers(queue.pop(1000, NEVER)) == [0]
    assert waiting.result(SOON)


def test_a_tick_larger_than_the_queue_gets_through() -> None:
    queue = TickQueue(max_bytes=100)
    assert queue.put(tick(0, 1000), timeout=0.01)
    assert queue.size_bytes == 1000
    assert not queue.put(tick(1, 1), timeout=0.01)


def test_a_closed_queue_gives_what_it_holds_and_takes_nothing_more() -> None:
    queue = filled(2)
    queue.close()
    with pytest.raises(QueueClosed, match="ended after tick 1"):
        queue.put(tick(2))
    assert not queue.finished
    run = queue.pop(1000, NEVER)
    assert numbers(run) == [0, 1]
    queue.done(len(run))
    assert queue.pop(1000, NEVER) == []
    assert queue.finished


def test_a_producer_waiting_for_room_learns_of_the_close(pool: ThreadPoolExecutor) -> None:
    queue = TickQueue(max_ticks=1)
    queue.put(tick(0))
    waiting = pool.submit(queue.put, tick(1))
    queue.close()
    with pytest.raises(QueueClosed):
        waiting.result(SOON)


@pytest.mark.parametrize("number", [4, 5])
def test_a_tick_that_is_not_above_the_last_one_is_refused(number: int) -> None:
    queue = TickQueue()
    queue.put(tick(5))
    with pytest.raises(TicksOutOfOrder, match=f"Tick {number} came after tick 5"):
        queue.put(tick(number))
    assert len(queue) == 1


def test_a_batch_that_was_released_comes_again_first_and_alone() -> None:
    queue = filled(9)
    first, second = queue.pop(3, NEVER), queue.pop(3, NEVER)
    queue.done(len(second))
    queue.release(first)
    assert len(queue) == 6
    assert numbers(queue.pop(9, NEVER)) == [0, 1, 2]
    assert numbers(queue.pop(3, NEVER)) == [6, 7, 8]


def test_the_end_waits_for_batches_that_may_still_be_released(pool: ThreadPoolExecutor) -> None:
    queue = filled(3)
    queue.close()
    run = queue.pop(3, NEVER)
    peer = pool.submit(queue.pop, 3, NEVER)
    assert not queue.finished
    assert not queue.wait_finished(timeout=0.01)
    queue.release(run)
    assert peer.result(SOON) == run
    queue.done(len(run))
    assert queue.wait_finished(SOON)


def test_takers_who_are_interrupted_return_nothing_and_leave_the_ticks(
    pool: ThreadPoolExecutor, eventually: Callable[..., None]
) -> None:
    queue, interrupted = filled(1), threading.Event()
    taken = [pool.submit(queue.pop, 10, NEVER, unless=interrupted.is_set) for _ in range(2)]
    eventually(lambda: len(queue._changed._waiters) == 2)  # type: ignore[attr-defined]
    interrupted.set()
    queue.wake()
    assert [each.result(SOON) for each in taken] == [[], []]
    assert queue.pop(10, NEVER, unless=interrupted.is_set) == []
    assert len(queue) == 1


def test_a_producer_who_is_interrupted_keeps_its_tick_unless_there_is_room(
    pool: ThreadPoolExecutor, eventually: Callable[..., None]
) -> None:
    queue, interrupted = TickQueue(max_ticks=1), threading.Event()
    queue.put(tick(0))
    waiting = pool.submit(queue.put, tick(1), unless=interrupted.is_set)
    eventually(lambda: len(queue._changed._waiters) == 1)  # type: ignore[attr-defined]
    interrupted.set()
    queue.wake()
    assert waiting.result(SOON) is False
    assert queue.last_tick == 0
    queue.pop(1, NEVER)
    assert queue.put(tick(1), unless=interrupted.is_set)


def test_pop_now_leaves_what_came_after() -> None:
    queue = filled(5)
    assert numbers(queue.pop_now(2, up_to=3)) == [0, 1]
    assert numbers(queue.pop_now(2, up_to=3)) == [2, 3]
    assert queue.pop_now(2, up_to=3) == []


def test_competing_takers_get_runs_that_do_not_interleave(pool: ThreadPoolExecutor) -> None:
    queue, count = TickQueue(max_ticks=50), 5000
    runs: list[list[int]] = []
    lock = threading.Lock()

    def consume(size: int) -> None:
        while not queue.finished:
            run = queue.pop(size, 0.001)
            with lock:
                runs.extend([numbers(run)] if run else [])
            queue.done(len(run))

    takers = [pool.submit(consume, size) for size in (3, 7, 13, 64)]
    for number in range(count):
        assert queue.put(tick(number), SOON)
    queue.close()
    for taker in takers:
        taker.result(SOON)
    runs.sort()
    assert [number for run in runs for number in run] == list(range(count))


@settings(deadline=None)
@given(st.lists(st.sampled_from(["put", "take", "done", "give back"]), max_size=80), st.integers(1, 4))
def test_every_tick_is_queued_popped_or_done_and_batches_never_overlap(steps: list[str], size: int) -> None:
    queue, made, held, done = TickQueue(), 0, [], []
    for step in steps:
        if step == "put":
            queue.put(tick(made))
            made += 1
        elif step == "take":
            held.extend([run] if (run := queue.pop_now(size, up_to=made)) else [])
        elif held and step == "done":
            done.append(held.pop(0))
            queue.done(len(done[-1]))
        elif held:
            queue.release(held.pop())
    assert len(queue) + sum(map(len, held + done)) == made
    runs = sorted(numbers(run) for run in held + done)
    assert all(run == list(range(run[0], run[-1] + 1)) for run in runs)
    assert len({number for run in runs for number in run}) == sum(map(len, runs))
