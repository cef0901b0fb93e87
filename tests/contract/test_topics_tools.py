"""Dead letters, positions, claims and retention: what an operator can do, on every database."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from ticklake import BatchInfo, Database
from ticklake.errors import InvalidOption, RunNotInDatabase, UnknownGroup, UnknownMessage
from ticklake.topics import DeadLetterFilter, Message, Run, TopicReader

Batch = Callable[[int], BatchInfo]
PassTime = Callable[[float], None]


def numbers(messages: list[Message]) -> list[int]:
    return [message.payload.tick_start for message in messages]  # type: ignore[attr-defined]


def drain(reader: TopicReader) -> list[int]:
    found: list[int] = []
    while messages := reader.poll_many(100, 0):
        assert all(reader.ack_many(messages))
        found += numbers(messages)
    return found


def bury(reader: TopicReader, error: str = "no good") -> Message:
    """Fail the next message until it is a dead letter."""
    while True:
        message = reader.poll(0)
        assert message is not None
        if reader.fail(message, ValueError(error)):
            return message


@pytest.mark.warns("DEAD_LETTER")
def test_a_message_that_fails_too_often_becomes_a_dead_letter(run: Run, batch: Batch) -> None:
    with run.writer("t") as writer, run.reader("t", group="g", max_delivery_attempts=3) as reader:
        writer.send_many([batch(1), batch(2)])
        for attempt in (1, 2):
            message = reader.poll(0)
            assert message is not None and message.attempts == attempt
            assert reader.fail(message, ValueError("no good")) is False
        message = reader.poll(0)
        assert message is not None and reader.fail(message, ValueError("no good")) is True
        assert drain(reader) == [2]
    (letter,) = run.dead_letters.list()
    assert (letter.topic, letter.group, letter.message_id, letter.attempts) == ("t", "g", message.id, 3)
    assert letter.error == "ValueError: no good"
    assert "ValueError: no good" in letter.traceback
    opened = letter.opened()
    assert opened is not None and opened.payload == batch(1)
    assert run.monitor.snapshot()["dead_letters_added"] == 1


def test_a_failure_may_ask_for_a_delay(run: Run, batch: Batch, pass_time: PassTime) -> None:
    with run.writer("t") as writer, run.reader("t", group="g") as reader:
        writer.send(batch(1))
        message = reader.poll(0)
        assert message is not None and reader.fail(message, "later", delay=30) is False
        assert reader.poll(0) is None
        pass_time(31)
        again = reader.poll(0)
        assert again is not None and again.attempts == 2


@pytest.mark.warns("STUCK_MESSAGE", "DEAD_LETTER")
def test_a_message_that_kills_its_consumers_becomes_a_dead_letter(run: Run, batch: Batch, pass_time: PassTime) -> None:
    options = {"group": "g", "claim_timeout": 10, "max_delivery_attempts": 2}
    with run.writer("t") as writer:
        writer.send_many([batch(1), batch(2)])
    readers = [run.reader("t", **options) for _ in range(3)]  # type: ignore[arg-type]
    for reader in readers[:2]:
        assert numbers(reader.poll_many(1, 0)) == [1]
        pass_time(11)
    assert drain(readers[2]) == [2]
    (letter,) = run.dead_letters.list()
    assert letter.error == "delivered 2 times and never acknowledged"
    for reader in readers:
        reader.close()


@pytest.mark.warns("DEAD_LETTER")
def test_a_message_that_cannot_be_decoded_is_set_aside_at_once(run: Run, batch: Batch) -> None:
    with run.writer("t") as writer, run.reader("t", group="g") as reader:
        writer.send(batch(1))
        garbled = writer.send(batch(2))
        unknown = writer.send(batch(3))
        empty = writer.send(batch(4))
        writer.send(batch(5))
        with run.transaction() as transaction:
            spoil = "UPDATE topic_messages SET envelope = :e WHERE message_id = :m"
            for message_id, data in ((garbled, b"\xff\xff\xff"), (unknown, b"\x1a\x0b\x0a\x09x/No.Such"), (empty, b"")):
                transaction.execute(spoil, {"e": data, "m": message_id})
        assert drain(reader) == [1, 5]
    letters = {letter.message_id: letter for letter in run.dead_letters.list()}
    assert set(letters) == {garbled, unknown, empty}
    assert "bytes are broken" in letters[garbled].error
    assert "'No.Such' is unknown" in letters[unknown].error
    assert "no payload" in letters[empty].error
    assert letters[garbled].envelope == b"\xff\xff\xff"
    assert letters[garbled].opened() is None


@pytest.mark.warns("DEAD_LETTER", "STALE_ACK")
def test_a_replay_is_a_new_delivery(run: Run, batch: Batch) -> None:
    with run.writer("t") as writer, run.reader("t", group="g", max_delivery_attempts=2) as reader:
        writer.send_many([batch(1), batch(2)])
        dead = bury(reader)
        assert drain(reader) == [2]
        assert run.dead_letters.replay(DeadLetterFilter(message_id=dead.id)) == 1
        assert reader.ack(dead) is False
        again = reader.poll(0)
        assert again is not None
        assert (again.id, again.attempts) == (dead.id, 1)
        assert again.claim_version > dead.claim_version
        assert reader.ack(again)
    assert run.dead_letters.count() == 0


@pytest.mark.warns("DEAD_LETTER")
def test_dead_letters_are_replayed_and_discarded_by_filter(run: Run, batch: Batch) -> None:
    with run.writer("t") as writer:
        writer.send_many(batch(n) for n in range(3))
    with (
        run.reader("t", group="a", max_delivery_attempts=1) as a,
        run.reader("t", group="b", max_delivery_attempts=1) as b,
    ):
        for error in ("100% wrong", "it's late", "100% wrong"):
            bury(a, error)
        bury(b, "it's late")
        letters = run.dead_letters
        assert letters.count() == 4
        assert letters.count(DeadLetterFilter(error="0% wr")) == 2
        assert letters.count(DeadLetterFilter(error="it's", group="b")) == 1
        assert letters.replay(DeadLetterFilter(group="a", error="wrong")) == 2
        assert drain(a) == [0, 2]
        assert letters.discard(DeadLetterFilter(topic="t", group="b")) == 1
        assert letters.count() == 1
        assert drain(b) == [1, 2]


def test_a_group_set_to_the_earliest_gets_everything_again(run: Run, batch: Batch) -> None:
    with run.writer("t") as writer, run.reader("t", group="g") as reader, run.reader("t", group="other") as other:
        writer.send_many(batch(n) for n in range(4))
        assert drain(reader) == drain(other) == [0, 1, 2, 3]
        assert run.groups.reset("t", "g", "earliest", dry_run=True) == 4
        assert drain(reader) == []
        assert run.groups.reset("t", "g", "earliest") == 4
        assert drain(reader) == [0, 1, 2, 3]
        assert drain(other) == []


@pytest.mark.warns("STALE_ACK_REJECTED")
def test_a_group_that_was_set_back_gets_old_and_new_together(run: Run, batch: Batch) -> None:
    with run.writer("t") as writer, run.reader("t", group="g") as reader:
        writer.send_many(batch(n) for n in range(3))
        old = reader.poll_many(2, 0)
        run.groups.reset("t", "g", "earliest")
        new = reader.poll_many(10, 0)
        assert [m.payload.tick_start for m in new] == [0, 1, 2]
        assert [m.claim_version for m in new] == [3, 3, 1]
        assert reader.ack_many(old) == [False, False]
        assert reader.ack_many(new) == [True, True, True]
        assert drain(reader) == []


@pytest.mark.warns("STALE_ACK_REJECTED")
def test_a_claim_from_before_a_reset_is_refused(run: Run, batch: Batch) -> None:
    with run.writer("t") as writer, run.reader("t", group="g") as before, run.reader("t", group="g") as after:
        writer.send_many([batch(1), batch(2)])
        old = before.poll(0)
        assert old is not None
        run.groups.reset("t", "g", "earliest")
        assert before.ack(old) is False
        new = after.poll(0)
        assert new is not None and new.id == old.id
        assert before.ack(old) is False
        assert after.ack(new) is True
        assert drain(after) == [2]


def test_a_group_can_be_set_to_a_message_a_time_or_the_end(run: Run, batch: Batch, pass_time: PassTime) -> None:
    with run.writer("t") as writer, run.reader("t", group="g") as reader:
        ids = writer.send_many(batch(n) for n in range(3))
        pass_time(1000)
        halfway = datetime.fromtimestamp(run.now_ms() / 1000 - 500, UTC)
        writer.send_many(batch(n) for n in range(3, 5))
        assert drain(reader) == [0, 1, 2, 3, 4]
        assert run.groups.reset("t", "g", ids[1]) == 4
        assert drain(reader) == [1, 2, 3, 4]
        assert run.groups.reset("t", "g", halfway) == 2
        assert drain(reader) == [3, 4]
        assert run.groups.reset("t", "g", "earliest") == 5
        assert run.groups.reset("t", "g", "end") == 0
        assert drain(reader) == []
        writer.send(batch(5))
        assert drain(reader) == [5]


def test_a_time_without_a_zone_is_utc_wherever_one_is(run: Run, batch: Batch, in_zone: Callable[[str], None]) -> None:
    with run.writer("t") as writer, run.reader("t", group="g"):
        before = datetime.fromtimestamp(run.now_ms() / 1000, UTC).replace(tzinfo=None)
        writer.send(batch(0))
    for zone in ("America/New_York", "Asia/Tokyo"):
        in_zone(zone)
        assert run.groups.reset("t", "g", before, dry_run=True) == 1
        assert run.groups.reset("t", "g", before + timedelta(hours=1), dry_run=True) == 0


def test_a_reset_says_what_it_does_not_know(run: Run, batch: Batch) -> None:
    with run.writer("t") as writer:
        writer.send(batch(1))
    with pytest.raises(UnknownGroup, match="ticklake groups"):
        run.groups.reset("t", "nobody", "earliest")
    run.reader("t", group="g").close()
    with pytest.raises(UnknownMessage):
        run.groups.reset("t", "g", "00000000-0000-0000-0000-000000000000")


def test_lag_is_known_when_no_consumer_is_alive(run: Run, batch: Batch, pass_time: PassTime) -> None:
    with run.writer("t") as writer, run.reader("t", group="g") as reader:
        writer.send_many(batch(n) for n in range(5))
        first, _ = reader.poll_many(2, 0)
        reader.ack(first)
        pass_time(100)
        (status,) = run.groups.list()
        assert (status.topic, status.group, status.lag, status.claimed, status.dead_letters) == ("t", "g", 4, 1, 0)
    (status,) = run.groups.list("t")
    assert (status.lag, status.claimed) == (4, 0)
    assert status.oldest_ms is not None and 100_000 <= status.oldest_ms < 200_000
    with run.reader("t", group="g") as reader:
        drain(reader)
    (status,) = run.groups.list("t")
    assert (status.lag, status.oldest_ms) == (0, None)
    assert run.groups.list("other") == []


def test_stuck_claims_are_listed_and_released(run: Run, batch: Batch, pass_time: PassTime) -> None:
    with run.writer("t") as writer:
        writer.send_many(batch(n) for n in range(3))
    stuck = run.reader("t", group="g", claim_timeout=0, consumer="the stuck one")
    stuck.poll_many(2, 0)
    pass_time(301)
    with run.reader("t", group="g", claim_timeout=900) as live:
        assert numbers(live.poll_many(9, 0)) == [2]
        assert len(run.claims.list()) == 3
        held = run.claims.list(stuck=True)
        assert [(claim.consumer, claim.version, claim.expires_in_ms) for claim in held] == [
            ("the stuck one", 1, None)
        ] * 2
        assert held[0].age_ms >= 301_000
        assert run.claims.release(held) == 2
        assert run.claims.release(held) == 0
        assert drain(live) == [0, 1]


def test_topics_can_be_looked_into_without_claiming(run: Run, batch: Batch) -> None:
    with run.writer("a") as a, run.writer("b") as b:
        a.send_many(batch(n) for n in range(5))
        b.send(batch(9))
    with run.reader("a", group="g") as reader:
        first, _ = reader.poll_many(2, 0)
        reader.ack(first)
        states = [message.state for message in run.browse("a", group="g")]
    assert states == ["acknowledged", "claimed", "new", "new", "new"]
    last = run.browse_last("a", 2)
    opened = [message.opened() for message in last]
    assert [o.payload.tick_start for o in opened if o] == [3, 4]  # type: ignore[attr-defined]
    assert run.browse("a", after=last[-1].id) == []
    assert [(t.topic, t.messages, t.groups) for t in run.topics()] == [("a", 5, 1), ("b", 1, 0)]


@pytest.mark.warns("DEAD_LETTER")
@pytest.mark.parametrize("limit", [1, 2])
def test_a_message_that_was_delivered_too_often_lets_no_newer_one_overtake(run: Run, batch: Batch, limit: int) -> None:
    with run.writer("t") as writer, run.reader("t", group="g", max_delivery_attempts=2) as reader:
        writer.send_many(batch(n) for n in range(6))
        first, *_ = reader.poll_many(4, 0)
        reader.fail(first, "no good")
        assert numbers(reader.poll_many(1, 0)) == [0]
        assert run.claims.release(run.claims.named(group="g")) == 4
        found: list[int] = []
        while messages := reader.poll_many(limit, 0):
            found += numbers(messages)
    assert found == [1, 2, 3, 4, 5]


def test_retention_is_explicit_and_never_removes_what_a_group_needs(
    run: Run, batch: Batch, pass_time: PassTime
) -> None:
    with run.writer("t") as writer, run.reader("t", group="slow") as slow, run.reader("t", group="fast") as fast:
        writer.send_many(batch(n) for n in range(6))
        pass_time(100)
        writer.send_many(batch(n) for n in range(6, 8))
        assert len(drain(fast)) == 8
        slow.ack_many(slow.poll_many(2, 0))
        held = slow.poll_many(1, 0)
        assert run.remove_outdated("t", max_age=50, dry_run=True) == 2
        assert run.remove_outdated("t", max_age=50) == 2
        assert run.remove_outdated("t", max_count=1) == 0
        assert run.remove_outdated("t", max_age=50, force=True) == 3  # one is in somebody's hands
        assert all(slow.ack_many(held))
        assert drain(slow) == [6, 7]
        assert run.remove_outdated("t", max_count=1) == 2
    with run.reader("t", group="new") as new:
        assert drain(new) == [7]
    with pytest.raises(InvalidOption, match="max_age"):
        run.remove_outdated("t")
    with pytest.raises(InvalidOption, match="max_count"):
        run.remove_outdated("t", max_count=-1)


@pytest.mark.warns("DEAD_LETTER")
def test_retention_keeps_dead_letters_replayable(run: Run, batch: Batch) -> None:
    with run.writer("t") as writer, run.reader("t", group="g", max_delivery_attempts=1) as reader:
        writer.send_many([batch(1), batch(2)])
        bury(reader)
        assert drain(reader) == [2]
        assert run.remove_outdated("t", max_count=0, force=True) == 1
        assert run.dead_letters.replay() == 1
        assert drain(reader) == [1]


def test_ids_are_not_used_again_after_retention(run: Run, batch: Batch) -> None:
    with run.writer("t") as writer, run.reader("t", group="g") as reader:
        writer.send_many([batch(1), batch(2)])
        drain(reader)
        assert run.remove_outdated("t", max_count=0) == 2
        writer.send(batch(3))
        assert drain(reader) == [3]


def test_a_run_that_is_not_there_is_not_made_by_looking(database: Database) -> None:
    with pytest.raises(RunNotInDatabase, match="no-such-run"):
        database.run("no-such-run", create=False)
    assert "no-such-run" not in database.runs()


@pytest.mark.warns("DEAD_LETTER")
def test_a_dead_letter_that_is_delivered_again_and_acknowledged_is_one_no_more(run: Run, batch: Batch) -> None:
    with run.writer("t") as writer, run.reader("t", group="g", max_delivery_attempts=1) as reader:
        writer.send_many([batch(1), batch(2)])
        bury(reader)
        bury(reader)
        run.groups.reset("t", "g", "earliest")
        message = reader.poll(0)
        assert message is not None and reader.ack(message)
        assert [letter.message_id for letter in run.dead_letters.list()] != [message.id]
        assert run.dead_letters.count() == 1
        assert run.groups.list()[0].dead_letters == 1


@pytest.mark.warns("DEAD_LETTER", "STALE_ACK_REJECTED")
def test_an_ack_that_is_refused_or_undone_leaves_the_dead_letter(run: Run, batch: Batch) -> None:
    with run.writer("t") as writer, run.reader("t", group="g", max_delivery_attempts=1) as reader:
        writer.send(batch(1))
        message = bury(reader)
        assert reader.ack(message) is False
        assert run.dead_letters.count() == 1
        run.groups.reset("t", "g", "earliest")
        again = reader.poll(0)
        assert again is not None
        with pytest.raises(ZeroDivisionError), run.transaction() as transaction:
            reader.ack_many([again], connection=transaction)
            raise ZeroDivisionError
        assert run.dead_letters.count() == 1


@pytest.mark.warns("DEAD_LETTER")
def test_a_replay_counts_what_will_be_delivered_because_of_it(run: Run, batch: Batch) -> None:
    with run.writer("t") as writer, run.reader("t", group="g", max_delivery_attempts=1) as reader:
        writer.send_many([batch(1), batch(2)])
        bury(reader)
        bury(reader)
        run.groups.reset("t", "g", "earliest")
        assert reader.poll(0) is not None  # the first is met again; so will be the second
        assert run.dead_letters.replay(dry_run=True) == 0
        assert run.dead_letters.replay() == 0
        assert run.dead_letters.count() == 0
        bury(reader)
        assert run.dead_letters.replay(dry_run=True) == 1
        assert run.dead_letters.replay() == 1
        assert drain(reader) == [2]


def test_retention_takes_a_storage_key_of_any_length(run: Run) -> None:
    key = "".join(secrets.choice("abcdefgh/") for _ in range(100_000))
    with run.writer("t") as writer:
        for _ in range(2):
            writer.send_many([BatchInfo(storage_key=key), BatchInfo(storage_key=key)])
            assert run.remove_outdated("t", max_count=0) == 2
    assert run.removed_files("t") == {key}


def test_a_small_pool_keeps_no_more_connections_than_it_has(database_url: str) -> None:
    with Database(database_url, max_pool_size=1) as small:
        assert small.run("r").topics() == []
    with pytest.raises(InvalidOption, match="min_idle"):
        Database(database_url, max_pool_size=1, min_idle=2)


def test_a_view_of_a_run_without_topics_makes_none(run: Run) -> None:
    run.prepare("ticklake.coordination")
    with run.reading() as view:
        assert view.execute("SELECT 1", {}) == [(1,)]
    assert [found.package for found in run.versions()] == ["ticklake.coordination"]
