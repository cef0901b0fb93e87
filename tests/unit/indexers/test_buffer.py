"""The buffer decides which slices a flush takes and which batches are done after it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ticklake.indexers.batches import Delivery
from ticklake.indexers.buffer import FlushInput, TickBuffer
from ticklake.storage.files import BatchFile
from ticklake.ticks import TickRange


def batch(start: int, end: int) -> Delivery:
    ticks = TickRange(start, end)
    return Delivery(BatchFile("run", f"run/batch_{start}_{end}.pb", ticks, 1000), ticks)


def ranges(slices: list) -> list[tuple[int, int]]:
    return [tuple(piece.ticks) for piece in slices]


def test_three_files_of_100_with_insert_size_250_ack_two_first_and_the_third_after_the_timeout() -> None:
    buffer = TickBuffer(insert_batch_size=250, flush_timeout=5.0, step=1)
    files = [batch(0, 99), batch(100, 199), batch(200, 299)]
    for file in files[:2]:
        buffer.add(file, now=0.0)
    assert buffer.due_at() == 5.0
    buffer.add(files[2], now=0.0)
    assert buffer.due_at() < 0.0

    first = buffer.pop(now=1.0)
    assert ranges(first.slices) == [(0, 99), (100, 199), (200, 249)]
    assert buffer.finish(first, failed=()) == files[:2]
    assert buffer.ticks == 50
    assert buffer.due_at() == 6.0

    second = buffer.pop(now=6.0)
    assert ranges(second.slices) == [(250, 299)]
    assert buffer.finish(second, failed=()) == [files[2]]
    assert not buffer.held


def test_a_batch_that_may_end_its_process_is_flushed_alone_and_at_once() -> None:
    buffer = TickBuffer(insert_batch_size=1000, flush_timeout=5.0, step=1)
    buffer.add(batch(0, 99), now=0.0)
    buffer.add(replace(batch(100, 199), alone=True), now=0.0)
    assert buffer.isolates
    assert buffer.due_at() < 0.0
    first = buffer.pop(now=0.0)
    assert ranges(first.slices) == [(0, 99)]
    assert buffer.waits_for_others
    buffer.finish(first, failed=())
    assert not buffer.waits_for_others
    second = buffer.pop(now=0.0)
    assert ranges(second.slices) == [(100, 199)]
    assert buffer.isolates
    buffer.finish(second, failed=())
    assert not buffer.isolates


def test_the_sampling_interval_counts() -> None:
    buffer = TickBuffer(insert_batch_size=15, flush_timeout=5.0, step=10)
    buffer.add(batch(0, 90), now=0.0)
    assert not buffer.full
    buffer.add(batch(100, 190), now=0.0)
    assert buffer.full
    assert ranges(buffer.pop(now=0.0).slices) == [(0, 90), (100, 149)]


def test_overlapping_files_never_share_a_flush() -> None:
    buffer = TickBuffer(insert_batch_size=1000, flush_timeout=5.0, step=1)
    for file in (batch(0, 99), batch(50, 149), batch(150, 199)):
        buffer.add(file, now=0.0)
    first = buffer.pop(now=0.0)
    assert ranges(first.slices) == [(0, 99)]
    buffer.finish(first, failed=())
    assert ranges(buffer.pop(now=0.0).slices) == [(50, 149), (150, 199)]


def test_what_overlaps_a_flush_under_way_waits_for_its_end() -> None:
    buffer = TickBuffer(insert_batch_size=100, flush_timeout=5.0, step=1)
    for file in (batch(0, 99), batch(50, 149)):
        buffer.add(file, now=0.0)
    first = buffer.pop(now=0.0)
    assert buffer.due_at() == float("inf")
    assert not buffer.pop(now=0.0).slices
    buffer.finish(first, failed=())
    assert buffer.due_at() == float("-inf")


def test_the_older_of_two_flushes_requeued_leaves_the_younger_its_ticks() -> None:
    buffer = TickBuffer(insert_batch_size=40, flush_timeout=5.0, step=1)
    file = batch(0, 99)
    buffer.add(file, now=0.0)
    older, younger = buffer.pop(now=0.0), buffer.pop(now=0.0)
    buffer.requeue(older)
    assert buffer.finish(younger, failed=()) == []
    again = buffer.pop(now=0.0)
    assert ranges(again.slices) == [(0, 39)]
    assert buffer.finish(again, failed=()) == []
    assert buffer.finish(buffer.pop(now=0.0), failed=()) == [file]


def test_a_batch_that_fails_in_two_flushes_is_reported_once() -> None:
    buffer = TickBuffer(insert_batch_size=40, flush_timeout=5.0, step=1)
    buffer.add(batch(0, 79), now=0.0)
    first, second = buffer.pop(now=0.0), buffer.pop(now=0.0)
    assert buffer.first_failures(first, {0}) == [0]
    buffer.finish(first, failed={0})
    assert buffer.first_failures(second, {0}) == []
    assert buffer.finish(second, failed={0}) == []
    assert not buffer.held


def test_files_out_of_order_share_a_flush() -> None:
    buffer = TickBuffer(insert_batch_size=1000, flush_timeout=5.0, step=1)
    for file in (batch(100, 199), batch(0, 99)):
        buffer.add(file, now=0.0)
    assert ranges(buffer.pop(now=0.0).slices) == [(100, 199), (0, 99)]


def test_a_failed_slice_drops_the_rest_of_its_batch() -> None:
    buffer = TickBuffer(insert_batch_size=150, flush_timeout=5.0, step=1)
    good, bad = batch(0, 99), batch(100, 199)
    buffer.add(good, now=0.0)
    buffer.add(bad, now=0.0)
    popped = buffer.pop(now=0.0)
    assert buffer.finish(popped, failed={1}) == [good]
    assert not buffer.held
    assert buffer.ticks == 0


def test_a_batch_in_two_flushes_at_once_is_done_after_both() -> None:
    buffer = TickBuffer(insert_batch_size=60, flush_timeout=5.0, step=1)
    file = batch(0, 99)
    buffer.add(file, now=0.0)
    first, second = buffer.pop(now=0.0), buffer.pop(now=0.0)
    assert buffer.finish(second, failed=()) == []
    assert buffer.finish(first, failed=()) == [file]


def test_after_a_flush_that_did_not_happen_everything_is_as_before() -> None:
    buffer = TickBuffer(insert_batch_size=150, flush_timeout=5.0, step=1)
    for file in (batch(0, 99), batch(100, 199)):
        buffer.add(file, now=0.0)
    before = buffer.pop(now=0.0)
    buffer.requeue(before)
    assert buffer.ticks == 200
    assert ranges(buffer.pop(now=0.0).slices) == ranges(before.slices)


def test_a_buffer_that_waited_long_for_its_first_batch_still_gives_the_next_ones_time_to_join() -> None:
    buffer = TickBuffer(insert_batch_size=250, flush_timeout=5.0, step=1)
    buffer.add(batch(0, 99), now=1000.0)
    assert buffer.due_at() == 1005.0


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=12),
    st.integers(1, 60),
    st.integers(1, 5),
    st.lists(st.sampled_from(["land", "fail", "back"]), max_size=40),
)
def test_every_tick_is_flushed_once_and_a_batch_is_done_only_after_its_last(
    counts: list[int], insert_size: int, step: int, fates: list[str]
) -> None:
    buffer = TickBuffer(insert_size, 5.0, step)
    files, start = [], 0
    for count in counts:
        files.append(batch(start, start + (count - 1) * step))
        start += count * step
        buffer.add(files[-1], now=0.0)
    flushed: dict[Delivery, list[int]] = {file: [] for file in files}
    done: list[Delivery] = []
    dropped: set[Delivery] = set()
    under_way: list[FlushInput] = []
    while buffer or under_way:
        if buffer and len(under_way) < 2:
            under_way.append(buffer.pop(now=0.0))
            assert sum(piece.ticks.count(step) for piece in under_way[-1].slices) <= insert_size
        if len(under_way) < 2 and buffer and len(fates) % 2:
            continue
        popped = under_way.pop(len(fates) % len(under_way))
        fate = fates.pop() if fates else "land"
        if fate == "back":
            buffer.requeue(popped)
            continue
        failed = {0} if fate == "fail" and popped.slices else set()
        dropped.update(popped.deliveries[number] for number in failed)
        for number, (piece, delivery) in enumerate(zip(popped.slices, popped.deliveries, strict=True)):
            if number not in failed:
                flushed[delivery].extend(range(piece.ticks.start, piece.ticks.end + 1, step))
        done.extend(buffer.finish(popped, failed))
    for file in files:
        everything = list(range(file.ticks.start, file.ticks.end + 1, step))
        assert (file in done) == (file not in dropped)
        assert len(flushed[file]) == len(set(flushed[file]))
        assert set(flushed[file]) <= set(everything) if file in dropped else sorted(flushed[file]) == everything
    assert len(done) == len(set(done))
    assert buffer.ticks == 0 and not buffer.held


def test_a_part_of_a_batch_is_checked_with_all_of_it_until_the_batch_is_known_to_be_good() -> None:
    buffer = TickBuffer(insert_batch_size=30, flush_timeout=5.0, step=1)
    buffer.add(batch(0, 99), now=0.0)
    first, second = buffer.pop(now=0.0), buffer.pop(now=0.0)
    assert [piece.whole for piece in (*first.slices, *second.slices)] == [TickRange(0, 99)] * 2
    buffer.finish(second, failed=(), proven={0})
    third = buffer.pop(now=0.0)
    assert [piece.whole for piece in third.slices] == [None]
    buffer.requeue(first)
    assert [piece.whole for piece in buffer.pop(now=0.0).slices] == [None]


def test_a_batch_that_fits_into_a_flush_needs_no_check() -> None:
    buffer = TickBuffer(insert_batch_size=100, flush_timeout=5.0, step=1)
    buffer.add(batch(0, 99), now=0.0)
    assert [piece.rest() for piece in buffer.pop(now=0.0).slices] == [[]]


def test_a_checked_file_is_cut_by_the_ticks_that_it_has() -> None:
    buffer = TickBuffer(insert_batch_size=10, flush_timeout=5.0, step=1)
    buffer.add(batch(0, 10**9), now=0.0)
    first = buffer.pop(now=0.0)
    assert ranges(first.slices) == [(0, 9)]
    assert buffer.finish(first, (), {0}, {0: np.array([*range(100, 112), 10**9])}) == []
    assert buffer.ticks == 13
    second = buffer.pop(now=0.0)
    assert ranges(second.slices) == [(10, 109)]
    buffer.requeue(second)
    assert buffer.ticks == 13
    second = buffer.pop(now=0.0)
    assert buffer.finish(second, ()) == []
    assert buffer.ticks == 3
    third = buffer.pop(now=0.0)
    assert ranges(third.slices) == [(110, 10**9)]
    assert len(buffer.finish(third, ())) == 1
    assert buffer.ticks == 0
