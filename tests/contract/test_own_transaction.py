"""What a thread does while it has a transaction open: it never waits for itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from ticklake import BatchInfo, Database
from ticklake.errors import NestedTransaction
from ticklake.topics import Message, Run, TopicReader

Batch = Callable[[int], BatchInfo]
Act = Callable[[TopicReader, Message], object]
FOR_EVER = 0.0


@pytest.fixture
def run(database_url: str, tmp_path: Path) -> Iterator[Run]:
    """On PostgreSQL, a thread that waits for itself gets an error."""
    limit = f"{'&' if '?' in database_url else '?'}options=-c%20lock_timeout%3D300"
    with Database(database_url + limit if database_url.startswith("postgres") else database_url) as database:
        yield database.run(f"own-{uuid4().hex[:8]}")


@pytest.fixture
def reader(run: Run, batch: Batch) -> Iterator[TopicReader]:
    with run.writer("t") as writer:
        writer.send_many([batch(1), batch(2)])
    with run.reader("t", group="g", claim_timeout=FOR_EVER) as reader:
        yield reader


def states(run: Run) -> list[str | None]:
    return [message.state for message in run.browse("t", group="g")]


ACTS: dict[str, Act] = {
    "ack": lambda reader, message: reader.ack(message),
    "extend": lambda reader, message: reader.extend([message]),
    "release": lambda reader, message: reader.release([message]),
    "fail": lambda reader, message: reader.fail(message, "no"),
    "fail for good": lambda reader, message: reader.fail(message, "no", last=True),
}


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_what_needs_another_transaction_is_refused_at_once(run: Run, reader: TopicReader, act: Act) -> None:
    first, second = reader.poll_many(2, 0)
    with run.transaction() as transaction:
        assert reader.ack_many([first], connection=transaction) == [True]
        for message in (first, second):
            with pytest.raises(NestedTransaction, match="connection="):
                act(reader, message)
    assert states(run) == ["acknowledged", "claimed"]
    assert reader.ack(second)


def test_a_mark_without_the_open_transaction_is_refused_at_once(run: Run) -> None:
    processed = run.processed("I")
    with run.transaction() as transaction:
        processed.mark(["a"], transaction)
        with pytest.raises(NestedTransaction, match="connection="):
            processed.mark(["a"])
    processed.mark(["b"])
    assert processed.contains("a")
    assert processed.contains("b")


@pytest.mark.parametrize("commits", [True, False])
def test_a_reader_that_is_closed_first_releases_its_claims_after_the_transaction(
    run: Run, reader: TopicReader, commits: bool
) -> None:
    """Its leases never end, so nobody else would release them."""
    first, _ = reader.poll_many(2, 0)
    try:
        with run.transaction() as transaction:
            reader.ack_many([first], connection=transaction)
            reader.close()
            reader.close()
            if not commits:
                raise KeyError
    except KeyError:
        assert not commits
    assert states(run) == ["acknowledged" if commits else "released", "released"]
    assert reader.monitor.counter("messages_acknowledged").value == int(commits)


def test_claims_that_could_not_be_released_in_the_transaction_are_released_after_it(
    run: Run, reader: TopicReader
) -> None:
    first, second = reader.poll_many(2, 0)
    with run.transaction():
        for message in (first, second):
            with pytest.raises(NestedTransaction):
                reader.release([message])
        reader.close()
    assert states(run) == ["released", "released"]


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
def test_a_reader_can_be_opened_used_and_closed_inside_of_a_transaction(run: Run, batch: Batch) -> None:
    with run.writer("t") as writer:
        writer.send_many([batch(1), batch(2)])
    with run.transaction() as transaction, run.transaction() as inner:
        with run.reader("t", group="g", claim_timeout=FOR_EVER) as reader:
            (first,) = reader.poll_many(1, 0)
            assert reader.ack_many([first], connection=inner) == [True]
            assert len(reader.poll_many(2, 0)) == 1
        assert transaction.execute("SELECT 1 AS one", {}) == [(1,)]
    assert states(run) == ["acknowledged", "released"]


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
def test_a_poll_after_an_outage_waits_for_no_claim_of_the_open_transaction(run: Run, reader: TopicReader) -> None:
    """It releases claims that the reader does not know. The reader has forgotten this one, but it is acknowledged."""
    (first,) = reader.poll_many(1, 0)
    with run.transaction() as transaction:
        reader.ack_many([first], connection=transaction)
        with pytest.raises(NestedTransaction):
            reader.release([first])
        reader.monitor.healthy = False
        assert len(reader.poll_many(2, 0)) == 1
        assert reader.problem is None
    assert states(run) == ["acknowledged", "claimed"]
