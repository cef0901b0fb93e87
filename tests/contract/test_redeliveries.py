"""Messages that are delivered again: together if that harms none of them, and alone if one may end its process."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest

from ticklake import BatchInfo
from ticklake.consumer import IdempotentConsumer
from ticklake.topics import Message, Run, TopicReader

pytestmark = pytest.mark.warns("STUCK_MESSAGE_REASSIGNED", "DEAD_LETTER ", "MESSAGE_FAILED")
Batch = Callable[[int], BatchInfo]
PassTime = Callable[[float], None]
LEASE = 10.0


@pytest.fixture
def open_reader(run: Run) -> Callable[..., TopicReader]:
    def make(attempts: int = 6, *, alone: bool = True) -> TopicReader:
        options = {"claim_timeout": LEASE, "max_delivery_attempts": attempts, "redeliver_alone": alone}
        return run.reader("t", group="g", **options)  # type: ignore[arg-type]

    return make


def send(run: Run, count: int, batch: Batch) -> None:
    with run.writer("t") as writer:
        writer.send_many(batch(number) for number in range(count))


def polls(reader: TopicReader, limit: int = 100) -> list[list[tuple[int, int]]]:
    """The numbers and attempts of each poll, until there are no more messages."""
    found = []
    while messages := reader.poll_many(limit, 0):
        found.append([(m.payload.tick_start, m.attempts) for m in messages])  # type: ignore[attr-defined]
    return found


def numbers(messages: list[Message]) -> list[int]:
    return [message.payload.tick_start for message in messages]  # type: ignore[attr-defined]


def test_messages_of_a_process_that_was_killed_come_again_together(
    run: Run, batch: Batch, open_reader: Callable[..., TopicReader], pass_time: PassTime
) -> None:
    send(run, 500, batch)
    assert len(open_reader().poll_many(500, 0)) == 500
    pass_time(2 * LEASE)
    assert [len(found) for found in polls(open_reader())] == [100] * 5
    pass_time(2 * LEASE)
    assert [len(found) for found in polls(open_reader())] == [1] * 500, "one of them may end every process"


def test_with_one_attempt_all_messages_of_a_process_that_was_killed_are_dead_letters(
    run: Run, batch: Batch, open_reader: Callable[..., TopicReader], pass_time: PassTime
) -> None:
    send(run, 3, batch)
    assert len(open_reader(1).poll_many(2, 0)) == 2
    pass_time(2 * LEASE)
    with open_reader(1) as reader:
        assert polls(reader) == [[(2, 1)]]
    assert run.dead_letters.count() == 2


@pytest.mark.parametrize("attempts", [2, 6])
def test_a_lowered_limit_counts_at_once_and_a_raised_one_adds_deliveries(
    run: Run, batch: Batch, open_reader: Callable[..., TopicReader], pass_time: PassTime, attempts: int
) -> None:
    send(run, 2, batch)
    for _ in range(2):
        assert len(open_reader(4, alone=False).poll_many(100, 0)) == 2
        pass_time(2 * LEASE)
    delivered = [[], []] if attempts == 2 else [[(0, 3)], [(1, 3)]]
    assert polls(open_reader(attempts)) == [found for found in delivered if found]
    assert run.dead_letters.count() == (2 if attempts == 2 else 0)


def test_messages_that_failed_come_again_together_until_two_deliveries_are_left(
    run: Run, batch: Batch, open_reader: Callable[..., TopicReader]
) -> None:
    send(run, 4, batch)
    sizes = []
    with open_reader(6) as reader:
        while messages := reader.poll_many(100, 0):
            sizes.append(len(messages))
            for message in messages:
                reader.fail(message, "again")
    assert sizes == [4, 4, 4, 4, *[1, 1] * 4], "the last two deliveries of each"


def test_redelivered_messages_come_before_new_ones_and_apart_from_them(
    run: Run, batch: Batch, open_reader: Callable[..., TopicReader], pass_time: PassTime
) -> None:
    """A released message was not delivered yet, so it comes with others."""
    send(run, 8, batch)
    for _ in range(2):
        assert numbers(open_reader().poll_many(2, 0)) == [0, 1]
        pass_time(2 * LEASE)
    first = open_reader()
    held = {number: message for _ in range(3) for message in first.poll_many(4, 0) for number in numbers([message])}
    assert sorted(held) == [0, 1, 2, 3, 4, 5]
    first.release([held[0], held[2], held[4]])
    assert not first.fail(held[3], "once")
    assert not first.fail(held[5], "once")
    pass_time(2 * LEASE)  # the claim of 1 is lost for the third time
    found = polls(open_reader())
    assert found == [[(0, 3)], [(1, 4)], [(2, 1), (3, 2), (4, 1), (5, 2)], [(6, 1), (7, 1)]]


@pytest.mark.parametrize("attempts", [1, 2, 3])
def test_with_few_deliveries_every_redelivery_is_alone(
    run: Run, batch: Batch, open_reader: Callable[..., TopicReader], attempts: int
) -> None:
    send(run, 3, batch)
    with open_reader(attempts) as reader:
        for message in reader.poll_many(10, 0):
            reader.fail(message, "once")
        assert [len(found) for found in polls(reader)] == ([1] * 3 if attempts > 1 else [])


@pytest.mark.parametrize("attempts", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("seed", range(3))
def test_only_what_was_delivered_alone_dies_of_its_process(
    run: Run, batch: Batch, open_reader: Callable[..., TopicReader], pass_time: PassTime, attempts: int, seed: int
) -> None:
    """Processes die of two messages; others fail twice, are released, or are polled in any number."""
    rng, count = random.Random(seed), 24
    killers, flaky = {5, 6 + seed}, {2, 15}
    send(run, count, batch)
    delivered: Counter[int] = Counter()
    failed: Counter[int] = Counter()
    last_alone: dict[int, bool] = {}
    # A first delivery is together with others. Who cannot be delivered again may die of it.
    cap = attempts + 1
    while run.groups.lag("t", "g") if delivered else True:
        reader = open_reader(cap)
        while messages := reader.poll_many(rng.choice([1, 3, 10, 100]), 0):
            delivered.update(numbers(messages))
            last_alone.update(dict.fromkeys(numbers(messages), len(messages) == 1))
            if killers.intersection(numbers(messages)):
                break  # its process is killed
            for message in messages:
                (number,) = numbers([message])
                if number in flaky and failed[number] < min(2, attempts - 1):
                    failed[number] += 1
                    reader.fail(message, "flaky")
                elif rng.random() < 0.2:
                    delivered[number] -= 1
                    assert reader.release([message]) == [True]
                else:
                    assert reader.ack(message)
        pass_time(2 * LEASE)
    dead = {letter.opened().payload.tick_start for letter in run.dead_letters.list()}  # type: ignore[union-attr]
    assert killers <= dead <= killers | flaky
    assert all(last_alone[number] for number in dead)
    assert [delivered[number] for number in killers] == [cap, cap]


def test_a_consumer_catches_up_with_lost_messages_in_few_claims(
    run: Run, batch: Batch, open_reader: Callable[..., TopicReader], pass_time: PassTime
) -> None:
    send(run, 1000, batch)
    assert len(open_reader(alone=False).poll_many(1000, 0)) == 1000
    pass_time(2 * LEASE)
    done: list[int] = []
    with IdempotentConsumer(run, "t", "g", lambda payload, _: done.append(payload.tick_start)) as consumer:
        assert consumer.run_until_caught_up() == 1000
        assert consumer._reader.monitor.counter("claim_attempts").value <= 1000 / 100 + 2
    assert done == list(range(1000))
