"""Messages that are large, alone or together, on every database."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest

from ticklake import BatchInfo, Database
from ticklake.consumer import Outbox, Relay
from ticklake.errors import MessageTooLarge
from ticklake.topics import Message, Run
from ticklake.topics.store import parts

Batch = Callable[[int], BatchInfo]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the limits were small: gigabytes are too slow for a test."""
    monkeypatch.setattr(parts, "LARGEST_MESSAGE", 10_000)
    monkeypatch.setattr(parts, "LARGEST_PART", 1_000)


def large(size: int) -> BatchInfo:
    return BatchInfo(simulation_run_id="r", storage_key="x" * size, tick_start=0, tick_end=0)


def test_the_limits_leave_room_below_what_a_database_takes() -> None:
    """PostgreSQL ends the connection at 1 GB in one statement; an outbox writes each byte as two digits."""
    assert 2 * (parts.LARGEST_MESSAGE + parts.LARGEST_PART) < 1_000_000_000


@pytest.mark.usefixtures("small")
def test_a_message_that_is_too_large_is_refused_at_once_and_alone(run: Run, batch: Batch) -> None:
    with run.writer("t") as writer:
        with pytest.raises(MessageTooLarge, match="10,000"):
            writer.send_many([batch(1), large(10_000)])
        with pytest.raises(MessageTooLarge), run.transaction() as transaction:
            writer.send(large(10_000), connection=transaction)
        writer.send(batch(2))
    assert len(run.browse("t")) == 1


@pytest.mark.usefixtures("small")
def test_what_is_too_much_for_one_statement_is_published_in_order_and_as_one(run: Run) -> None:
    sizes = [900, 50, 3000, 10, 10, 10, 900, 900]
    with run.writer("t") as writer, run.reader("t", group="g") as reader:
        before = run.monitor.snapshot()["queries_executed"]
        writer.send_many([large(size) for size in sizes])
        assert run.monitor.snapshot()["queries_executed"] - before == 6  # only 10, 10 and 10 fit together
        messages = reader.poll_many(100, 0)
    assert [len(m.payload.storage_key) for m in messages] == sizes  # type: ignore[attr-defined]
    with run.writer("u") as writer:
        with run.transaction() as transaction:
            transaction.execute_script(_REFUSE[transaction.dialect])
        with pytest.raises(Exception, match="no"):
            writer.send_many([large(size) for size in sizes])
    assert run.browse("u") == []


_REFUSE = {
    "sqlite": "CREATE TRIGGER refuse BEFORE INSERT ON topic_messages WHEN length(NEW.envelope) > 3000 "
    "BEGIN SELECT raise(ABORT, 'no'); END",
    "postgres": "ALTER TABLE topic_messages ADD CONSTRAINT no CHECK (length(envelope) < 3000) NOT VALID",
}


@pytest.mark.usefixtures("small")
def test_an_outbox_takes_and_publishes_what_is_too_much_for_one_statement(run: Run) -> None:
    sizes = [900, 900, 3000, 10]
    outbox = Outbox(run, "t")
    with run.transaction() as transaction:
        outbox.add([outbox.result(f"{n:032x}", "g", 0, large(size)) for n, size in enumerate(sizes)], transaction)
    with Relay(run, "t") as relay:
        assert relay.relay() == len(sizes)
    found = [opened.payload.storage_key for m in run.browse("t") if (opened := m.opened())]  # type: ignore[attr-defined]
    assert [len(key) for key in found] == sizes
    with pytest.raises(MessageTooLarge):
        outbox.result(f"{9:032x}", "g", 0, large(10_000))


def test_retention_reads_only_a_few_large_messages_at_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "AT_ONCE", 2_000_000)
    with run.writer("t") as writer:
        for _ in range(30):
            writer.send(large(1_000_000))
        writer.send(large(3_000_000))
    tracemalloc.start()
    try:
        assert run.remove_outdated("t", max_count=0) == 31
        assert tracemalloc.get_traced_memory()[1] < 15_000_000
    finally:
        tracemalloc.stop()
    assert len(run.removed_files("t")) == 2


def mebibytes(run: Run, *sizes: int) -> None:
    with run.writer("t") as writer:
        for number, size in enumerate(sizes):
            writer.send(BatchInfo(storage_key="x" * (size << 20), tick_start=number))


def numbers(messages: list[Message]) -> list[int]:
    return [message.payload.tick_start for message in messages]  # type: ignore[attr-defined]


def test_a_poll_claims_no_more_bytes_than_fit_into_memory(run: Run) -> None:
    mebibytes(run, 6, 6, 6, 20, 1, 1)
    with run.reader("t", group="g") as reader:
        taken = [reader.poll_many(100, 0) for _ in range(4)]
        assert [numbers(part) for part in taken] == [[0, 1], [2], [3], [4, 5]]
        assert reader.poll_many(100, 0) == []
        assert [status.claimed for status in run.groups.list("t")] == [6]
        for part in taken:
            reader.release(part)
        again = [reader.poll_many(100, 0) for _ in range(4)]
        assert [numbers(part) for part in again] == [[0, 1], [2], [3], [4, 5]], "also of what was delivered before"
        assert all(message.attempts == 1 for part in again for message in part)
        assert all(reader.ack_many(message for part in again for message in part))
    assert [status.lag for status in run.groups.list("t")] == [0]


def test_what_was_delivered_before_leaves_less_room_for_what_is_new(run: Run) -> None:
    mebibytes(run, 6)
    with run.reader("t", group="g") as reader:
        reader.release(reader.poll_many(100, 0))
        mebibytes(run, 6, 6, 1)
        assert [numbers(reader.poll_many(100, 0)) for _ in range(3)] == [[0, 0], [1, 2], []]
        assert [status.lag for status in run.groups.list("t")] == [4]


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
def test_messages_that_committed_late_are_claimed_by_their_bytes_too(run: Run, database_url: str) -> None:
    with Database(database_url) as other, run.reader("t", group="g") as reader, run.writer("t") as writer:
        with other.run(run.id).transaction() as late:
            for number in range(3):
                writer.send(BatchInfo(storage_key="x" * (6 << 20), tick_start=number), connection=late)
            writer.send(BatchInfo(tick_start=3))
            assert numbers(reader.poll_many(100, 0)) == [3]
        writer.send(BatchInfo(tick_start=4))
        found = [numbers(reader.poll_many(100, 0)) for _ in range(4)]
    assert sorted(number for part in found for number in part) == [0, 1, 2, 4]
    assert found[0] == [0, 1]


def test_a_relay_reads_no_more_bytes_than_fit_into_memory(run: Run) -> None:
    outbox = Outbox(run, "out")
    for number, size in enumerate((6, 6, 6, 20, 1, 1)):
        with run.transaction() as transaction:
            result = BatchInfo(storage_key="x" * (size << 20), tick_start=number)
            outbox.add([outbox.result(f"{number:032x}", "g", 0, result)], transaction)
    with Relay(run, "out") as relay:
        assert [relay.relay() for _ in range(5)] == [2, 1, 1, 2, 0]
    assert [m.payload.tick_start for stored in run.browse("out") if (m := stored.opened())] == [0, 1, 2, 3, 4, 5]  # type: ignore[attr-defined]
