"""The database's clock is set back: a lease or a delay lasts no longer than it was meant to."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import pytest

from ticklake import BatchInfo
from ticklake.consumer import IdempotentConsumer
from ticklake.consumer.outbox import Outbox
from ticklake.consumer.processed import ProcessedMessages
from ticklake.consumer.relay import Relay
from ticklake.topics import Run

HOUR = 3600.0
LEASE = 10.0


@pytest.fixture
def sent(run: Run, batch: Callable[[int], BatchInfo]) -> None:
    with run.writer("t") as writer:
        writer.send(batch(1))


@pytest.mark.usefixtures("sent")
@pytest.mark.warns("STUCK_MESSAGE_REASSIGNED")
def test_a_lease_that_began_before_the_clock_was_set_back_ends_in_time(
    run: Run, pass_time: Callable[[float], None]
) -> None:
    with (
        run.reader("t", group="g", claim_timeout=LEASE) as gone,
        run.reader("t", group="g", claim_timeout=LEASE) as next_,
    ):
        lost = gone.poll(0)
        assert lost is not None
        pass_time(-HOUR)
        assert next_.poll(0) is None, "its holder may be at work"
        pass_time(LEASE + 1)
        message = next_.poll(0)
        assert message is not None
        assert (message.attempts, message.claim_version) == (2, 2)
        assert next_.ack(message)


@pytest.mark.warns("STUCK_MESSAGE_REASSIGNED")
def test_an_expired_claim_that_a_poll_had_no_room_for_is_delivered_after_the_clock_was_set_back(
    run: Run, batch: Callable[[int], BatchInfo], pass_time: Callable[[float], None]
) -> None:
    with (
        run.writer("t") as writer,
        run.reader("t", group="g", claim_timeout=LEASE) as gone,
        run.reader("t", group="g", claim_timeout=LEASE) as next_,
    ):
        writer.send_many(batch(number) for number in range(2))
        assert len(gone.poll_many(2, 0)) == 2
        pass_time(LEASE + 1)
        assert next_.poll(0) is not None
        (found,) = [claim for claim in run.claims.list(stuck=True) if claim.consumer == gone.consumer]
        assert found.expires_in_ms is not None
        assert -1000 * (LEASE + 60) < found.expires_in_ms < 0
        pass_time(-HOUR)
        message = next_.poll(0)
        assert message is not None
        assert message.payload.tick_start == 1  # type: ignore[attr-defined]


@pytest.mark.usefixtures("sent")
def test_a_delay_that_began_before_the_clock_was_set_back_ends_in_time(
    run: Run, pass_time: Callable[[float], None]
) -> None:
    with run.reader("t", group="g", claim_timeout=LEASE) as reader:
        message = reader.poll(0)
        assert message is not None
        assert not reader.fail(message, "once", delay=2)
        pass_time(-HOUR)
        assert reader.poll(0) is None
        pass_time(3)
        again = reader.poll(0)
        assert again is not None
        assert reader.ack(again)


@pytest.mark.usefixtures("sent")
@pytest.mark.warns("STUCK_MESSAGE_REASSIGNED")
def test_a_lease_that_was_extended_before_the_clock_was_set_back_ends_in_time(
    run: Run, pass_time: Callable[[float], None]
) -> None:
    """The claim itself is older than the clock says now; only its extension is of the future."""
    with (
        run.reader("t", group="g", claim_timeout=LEASE) as gone,
        run.reader("t", group="g", claim_timeout=LEASE) as next_,
    ):
        message = gone.poll(0)
        assert message is not None
        pass_time(2 * HOUR)
        assert gone.extend([message]) == [True]
        pass_time(-HOUR)
        assert next_.poll(0) is None
        pass_time(LEASE + 1)
        assert next_.poll(0) is not None


@pytest.mark.usefixtures("sent")
def test_a_holder_at_work_keeps_its_claim_when_the_clock_is_set_back(
    run: Run, pass_time: Callable[[float], None]
) -> None:
    with (
        run.reader("t", group="g", claim_timeout=LEASE) as holder,
        run.reader("t", group="g", claim_timeout=LEASE) as other,
    ):
        message = holder.poll(0)
        assert message is not None
        pass_time(-HOUR)
        for _ in range(5):
            assert other.poll(0) is None
            pass_time(LEASE / 3)
            assert holder.extend([message]) == [True]
        assert holder.ack(message)


@pytest.mark.usefixtures("sent")
def test_a_longer_lease_of_another_reader_is_not_cut_short(run: Run, pass_time: Callable[[float], None]) -> None:
    with (
        run.reader("t", group="g", claim_timeout=HOUR) as long,
        run.reader("t", group="g", claim_timeout=LEASE) as short,
    ):
        message = long.poll(0)
        assert message is not None
        pass_time(2 * LEASE)
        assert short.poll(0) is None
        pass_time(2 * LEASE)
        assert short.poll(0) is None
        assert long.ack(message)


@pytest.mark.usefixtures("sent")
def test_claims_from_before_the_clock_was_set_back_are_listed_as_stuck(
    run: Run, pass_time: Callable[[float], None]
) -> None:
    with run.reader("t", group="g", claim_timeout=LEASE) as gone:
        message = gone.poll(0)
        assert message is not None
        assert run.claims.list(stuck=True) == []
        pass_time(-HOUR)
        (stuck,) = run.claims.list(stuck=True)
        assert stuck.age_ms == 0
        assert gone.extend([message]) == [True]
        assert run.claims.list(stuck=True) == []
        assert gone.ack(message)


def test_marks_are_kept_as_long_as_the_oldest_message_though_its_id_is_not_the_lowest(
    run: Run, pass_time: Callable[[float], None], batch: Callable[[int], BatchInfo]
) -> None:
    """The clock was set back between the two messages, so the second one is the older one."""
    processed = ProcessedMessages(run, "t", "g")
    event_id = str(uuid4())
    with run.writer("t") as writer:
        writer.send(batch(1))
        pass_time(-HOUR)
        writer.send(batch(2))
        with run.transaction() as transaction:
            processed.mark([event_id], transaction)
    pass_time(2 * HOUR)
    assert processed.prune(max_age=0) == 0
    assert processed.find([event_id]).done == {event_id}


def test_a_mark_is_kept_while_its_message_is_there_though_that_was_stored_by_a_clock_ahead(
    run: Run, pass_time: Callable[[float], None], batch: Callable[[int], BatchInfo]
) -> None:
    done: list[int] = []
    pass_time(24 * HOUR)
    with run.writer("t") as writer:
        writer.send(batch(1))
    pass_time(-24 * HOUR)
    with IdempotentConsumer(run, "t", "g", lambda payload, _: done.append(payload.tick_start)) as consumer:
        consumer.run_until_caught_up()
        pass_time(2 * HOUR)
        assert ProcessedMessages(run, "t", "g").prune(max_age=HOUR) == 0
        run.groups.reset("t", "g", "earliest")
        consumer.run_until_caught_up()
    assert done == [1]


def test_an_outbox_is_tried_again_though_the_clock_was_set_back(
    run: Run, pass_time: Callable[[float], None], batch: Callable[[int], BatchInfo]
) -> None:
    outbox = Outbox(run, "t")
    with run.transaction() as transaction:
        outbox.add([outbox.result(str(uuid4()), "g", 0, batch(1))], transaction)
        rows = outbox.unsent(10, transaction)
    outbox.record_attempt([row.id for row in rows], RuntimeError("once"))
    pass_time(-HOUR)
    with Relay(run, "t") as relay:
        assert relay.relay() == 1


@pytest.mark.usefixtures("sent")
def test_no_age_is_below_zero_after_the_clock_was_set_back(run: Run, pass_time: Callable[[float], None]) -> None:
    outbox = Outbox(run, "out")
    with run.reader("t", group="g") as reader, Relay(run, "out"):
        with run.transaction() as transaction:
            outbox.add([outbox.result(str(uuid4()), "g", 0, BatchInfo())], transaction)
        pass_time(-HOUR)
        assert {status.topic: status.oldest_ms for status in run.groups.list()} == {"t": 0, "outbox/out": 0}
        assert reader.poll(0) is not None
        assert [status.oldest_ms for status in run.groups.list("t")] == [0]
