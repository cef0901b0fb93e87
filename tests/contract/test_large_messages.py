"""Messages that are large, alone or together, on every database."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest

from ticklake import BatchInfo
from ticklake.consumer import Outbox, Relay
from ticklake.errors import MessageTooLarge
from ticklake.topics import Run
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
    monkeypatch.setattr("ticklake.topics.admin.retention.CHUNK_BYTES", 2_000_000, raising=False)
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
