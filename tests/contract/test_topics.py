"""What a topic promises, on every database."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from ticklake import BatchInfo, Database, MetadataInfo
from ticklake.database import retry
from ticklake.database.readiness import readable
from ticklake.database.sqlite.wakeups import HintListener
from ticklake.errors import (
    DatabaseUnavailable,
    InvalidOption,
    MissingConsumerGroup,
    NestedTransaction,
    NotAMessage,
    OtherRun,
    StatementOfSavepoint,
    TickLakeError,
    TopicClosed,
    TransactionAborted,
)
from ticklake.topics import Message, Run, TopicReader
from ticklake.topics.envelope import wrap, wrap_all

Batch = Callable[[int], BatchInfo]
PassTime = Callable[[float], None]


def numbers(messages: list[Message]) -> list[int]:
    return [message.payload.tick_start for message in messages]  # type: ignore[attr-defined]


def drain(reader: TopicReader) -> list[int]:
    """Everything there is, acknowledged."""
    found: list[int] = []
    while messages := reader.poll_many(100, 0):
        assert all(reader.ack_many(messages))
        found += numbers(messages)
    return found


def test_a_message_comes_out_as_it_went_in(run: Run) -> None:
    sent = BatchInfo(simulation_run_id=run.id, storage_key="a/b", tick_start=0, tick_end=99, written_at_ms=7)
    before = run.now_ms()
    with run.writer("batch-topic") as writer, run.reader("batch-topic", group="g") as reader:
        message_id = writer.send(sent)
        message = reader.poll(timeout=1.0)
    assert message is not None
    assert message.payload == sent
    assert (message.id, message.topic, message.attempts, message.claim_version) == (message_id, "batch-topic", 1, 1)
    assert before - 1000 < message.published_at_ms < run.now_ms() + 1000


def test_the_type_of_a_message_travels_with_it(run: Run, batch: Batch) -> None:
    with run.writer("t") as writer, run.reader("t", group="g") as reader:
        writer.send_many([batch(1), MetadataInfo(storage_key="m")])
        assert [type(m.payload) for m in reader.poll_many(2, 1)] == [BatchInfo, MetadataInfo]


def test_messages_come_in_the_order_they_were_written(run: Run, batch: Batch) -> None:
    with run.writer("t") as writer, run.reader("t", group="g") as reader:
        writer.send(batch(0))
        writer.send_many(batch(n) for n in range(1, 120))
        writer.send(batch(120))
        assert drain(reader) == list(range(121))


def test_every_group_gets_every_message(run: Run, batch: Batch) -> None:
    with run.writer("t") as writer, run.reader("t", group="a") as a, run.reader("t", group="b") as b:
        writer.send_many([batch(1), batch(2)])
        assert drain(a) == [1, 2]
        assert drain(b) == [1, 2]


def test_a_late_group_gets_all_of_history(run: Run, batch: Batch) -> None:
    with run.writer("t") as writer, run.reader("t", group="early") as early:
        writer.send_many(batch(n) for n in range(10))
        assert drain(early) == list(range(10))
    with run.reader("t", group="late") as late:
        assert drain(late) == list(range(10))


def test_a_new_group_may_start_at_the_end(run: Run, batch: Batch) -> None:
    with run.writer("t") as writer:
        writer.send_many([batch(1), batch(2)])
        with run.reader("t", group="g", start="end") as reader:
            writer.send(batch(3))
            assert drain(reader) == [3]
        with run.reader("t", group="g", start="earliest") as again:
            assert drain(again) == []


def test_within_a_group_each_message_goes_to_one_consumer(run: Run, batch: Batch) -> None:
    with run.writer("t") as writer, run.reader("t", group="g") as a, run.reader("t", group="g") as b:
        writer.send_many(batch(n) for n in range(6))
        one, two = a.poll_many(2, 0), b.poll_many(3, 0)
        assert numbers(one) == [0, 1]
        assert numbers(two) == [2, 3, 4]
        assert numbers(a.poll_many(9, 0)) == [5]


def test_topics_of_a_run_do_not_mix(run: Run, batch: Batch) -> None:
    with run.writer("one") as one, run.writer("two") as two:
        one.send(batch(1))
        two.send(batch(2))
    with run.reader("one", group="g") as reader:
        assert drain(reader) == [1]
    with run.reader("two", group="g") as reader:
        assert drain(reader) == [2]


def test_runs_are_isolated(database: Database, run: Run, batch: Batch) -> None:
    other = database.run(run.id + "0")
    with run.writer("t") as writer, other.reader("t", group="g") as reader:
        writer.send(batch(1))
        assert reader.poll(0) is None
    assert {run.id, other.id} <= set(database.runs())


def test_nothing_is_lost_in_a_restart(database_url: str, run: Run, batch: Batch) -> None:
    with run.writer("t") as writer, run.reader("t", group="g") as reader:
        writer.send_many(batch(n) for n in range(3))
        first = reader.poll(0)
        assert first is not None and reader.ack(first)
    with Database(database_url) as again, again.run(run.id).reader("t", group="g") as reader:
        assert drain(reader) == [1, 2]


def test_an_ack_deletes_nothing(run: Run, batch: Batch) -> None:
    with run.writer("t") as writer, run.reader("t", group="g") as reader:
        writer.send(batch(1))
        assert drain(reader) == [1]
    with run.reading() as view:
        assert view.execute("SELECT count(*) FROM topic_messages", {}) == [(1,)]
        assert view.execute("SELECT count(*) FROM topic_consumer_group WHERE acknowledged_at IS NOT NULL", {}) == [(1,)]


def test_an_ack_can_be_repeated(run: Run, batch: Batch) -> None:
    with run.writer("t") as writer, run.reader("t", group="g") as reader:
        writer.send(batch(1))
        message = reader.poll(0)
        assert message is not None
        assert [reader.ack(message), reader.ack(message)] == [True, True]
        assert run.monitor.snapshot()["stale_acks_rejected"] == 0


@pytest.mark.warns("STUCK_MESSAGE_REASSIGNED", "STALE_ACK_REJECTED")
def test_an_old_claim_is_refused_beside_the_new_one_of_the_same_message(
    run: Run, batch: Batch, pass_time: PassTime
) -> None:
    with run.writer("t") as writer, run.reader("t", group="g", claim_timeout=60) as reader:
        writer.send(batch(1))
        old = reader.poll(0)
        pass_time(61)
        new = reader.poll(0)
        assert old is not None and new is not None and old.id == new.id
        assert reader.extend([old, new]) == [False, True]
        assert reader.ack_many([old, new]) == [False, True]


@pytest.mark.warns("STUCK_MESSAGE_REASSIGNED", "STALE_ACK_REJECTED")
def test_an_ack_after_takeover_is_refused_and_counted(
    run: Run, batch: Batch, pass_time: PassTime, caplog: pytest.LogCaptureFixture
) -> None:
    with run.writer("t") as writer, run.reader("t", group="g", claim_timeout=60) as slow:
        writer.send(batch(1))
        lost = slow.poll(0)
        assert lost is not None
        pass_time(61)
        with run.reader("t", group="g") as other:
            taken = other.poll(0)
            assert taken is not None
            assert (taken.id, taken.claim_version, taken.attempts) == (lost.id, 2, 2)
            assert slow.ack(lost) is False
            assert other.ack(taken) is True
            assert slow.ack(lost) is False
    counted = run.monitor.snapshot()
    assert (counted["stale_acks_rejected"], counted["stuck_messages_reassigned"]) == (2, 1)
    events = [record.message.split()[0] for record in caplog.records if record.levelname == "WARNING"]
    assert events == ["STUCK_MESSAGE_REASSIGNED", "STALE_ACK_REJECTED", "STALE_ACK_REJECTED"]


@pytest.mark.warns("STALE_ACK_REJECTED")
def test_a_claim_that_a_crash_of_the_database_undid_is_refused_although_the_next_one_has_its_version(
    run: Run, batch: Batch
) -> None:
    """Claims are not synced. After a power cut the same message may be claimed by somebody else as the same version."""
    with (
        run.writer("t") as writer,
        run.reader("t", group="g", max_delivery_attempts=1) as before,
        run.reader("t", group="g", max_delivery_attempts=1) as after,
    ):
        writer.send(batch(1))
        undone = before.poll(0)
        _undo_claims(run)
        held = after.poll(0)
        assert undone is not None and held is not None
        assert (undone.id, undone.claim_version) == (held.id, held.claim_version)
        assert before.ack(undone) is False
        assert before.extend([undone]) == [False]
        assert before.release([undone]) == [False]
        assert before.fail(undone, "too late") is False
        assert run.dead_letters.count() == 0
        assert after.ack(held) is True
        assert before.ack(undone) is False
    assert run.monitor.snapshot()["stale_acks_rejected"] == 2


def _undo_claims(run: Run) -> None:
    """As a power cut does, of a group that had no others."""
    with run.transaction() as transaction:
        positions = "topic_positions" if transaction.dialect == "postgres" else "topic_group_positions"
        transaction.execute_script("DELETE FROM topic_consumer_group")
        transaction.execute_script(f"UPDATE {positions} SET frontier = 0")


def test_an_expired_claim_that_nobody_took_can_still_be_acknowledged(
    run: Run, batch: Batch, pass_time: PassTime
) -> None:
    with run.writer("t") as writer, run.reader("t", group="g", claim_timeout=60) as reader:
        writer.send(batch(1))
        message = reader.poll(0)
        pass_time(61)
        assert message is not None and reader.ack(message)
        assert reader.poll(0) is None


def test_a_claim_is_kept_until_its_timeout(run: Run, batch: Batch, pass_time: PassTime) -> None:
    with run.writer("t") as writer, run.reader("t", group="g", claim_timeout=60) as reader:
        writer.send(batch(1))
        assert reader.poll(0)
        pass_time(59)
        with run.reader("t", group="g") as other:
            assert other.poll(0) is None


def test_a_claim_timeout_of_zero_never_reassigns(run: Run, batch: Batch, pass_time: PassTime) -> None:
    with run.writer("t") as writer, run.reader("t", group="g", claim_timeout=0) as reader:
        writer.send(batch(1))
        message = reader.poll(0)
        pass_time(1e7)
        with run.reader("t", group="g", claim_timeout=0) as other:
            assert other.poll(0) is None
        assert message is not None and reader.ack(message)


@pytest.mark.warns("STUCK_MESSAGE_REASSIGNED")
def test_an_older_message_whose_claim_expires_comes_before_newer_ones(
    run: Run, batch: Batch, pass_time: PassTime
) -> None:
    with run.writer("t") as writer, run.reader("t", group="g", claim_timeout=60) as dead:
        writer.send_many(batch(n) for n in range(5))
        dead.poll_many(2, 0)
        with run.reader("t", group="g", claim_timeout=600) as reader:
            assert numbers(reader.poll_many(1, 0)) == [2]
            pass_time(61)
            assert numbers(reader.poll_many(4, 0)) == [0, 1, 3, 4]


@pytest.mark.warns("STUCK_MESSAGE_REASSIGNED")
def test_work_that_makes_progress_keeps_its_claim(run: Run, batch: Batch, pass_time: PassTime) -> None:
    with (
        run.writer("t") as writer,
        run.reader("t", group="g", claim_timeout=60) as worker,
        run.reader("t", group="g") as other,
    ):
        writer.send_many([batch(1), batch(2)])
        held, hung = worker.poll_many(2, 0)
        for _ in range(4):
            pass_time(40)
            assert worker.extend([held]) == [True]
        assert numbers(other.poll_many(9, 0)) == [2]
        assert worker.extend([held, hung]) == [True, False]
        assert worker.ack(held)


@pytest.mark.warns("STALE_ACK_REJECTED")
def test_a_released_message_is_free_at_once_and_counts_as_no_attempt(run: Run, batch: Batch) -> None:
    with run.writer("t") as writer, run.reader("t", group="g") as a, run.reader("t", group="g") as b:
        writer.send(batch(1))
        message = a.poll(0)
        assert message is not None and a.release([message]) == [True]
        assert a.ack(message) is False
        again = b.poll(0)
        assert again is not None and (again.claim_version, again.attempts) == (2, 1)
        assert a.release([message]) == [False]
        assert b.ack(again)


def test_a_release_may_ask_for_a_delay(run: Run, batch: Batch, pass_time: PassTime) -> None:
    with run.writer("t") as writer, run.reader("t", group="g") as reader:
        writer.send(batch(1))
        message = reader.poll(0)
        assert message is not None
        reader.release([message], delay=30)
        assert reader.poll(0) is None
        pass_time(31)
        assert drain(reader) == [1]


@pytest.mark.warns("Waiting for the database", "DEAD_LETTER")
@pytest.mark.parametrize("attempts", [5, 1], ids=["given back", "buried"])
def test_a_poll_after_an_outage_leaves_what_another_thread_is_about_to_give_back(
    run: Run, batch: Batch, monkeypatch: pytest.MonkeyPatch, attempts: int
) -> None:
    with run.writer("t") as writer, run.reader("t", group="g", max_delivery_attempts=attempts) as reader:
        writer.send(batch(1))
        message = reader.poll(0)
        assert message is not None
        act = "release" if attempts > 1 else "bury"
        again, do = iter((False, True)), getattr(reader._store, act)

        def after_an_outage(*args: Any, **options: Any) -> object:
            if not next(again):
                raise DatabaseUnavailable(database="d", reason="away")
            assert reader.poll(0) is None, "the other thread"
            return do(*args, **options)

        monkeypatch.setattr(reader._store, act, after_an_outage)
        assert reader.fail(message, "once", delay=30) is (act == "bury")
        assert reader.poll(0) is None


def test_closing_a_reader_gives_its_claims_back(run: Run, batch: Batch) -> None:
    with run.writer("t") as writer:
        writer.send_many([batch(1), batch(2)])
    with run.reader("t", group="g") as reader:
        assert len(reader.poll_many(2, 0)) == 2
        reader.close()
        reader.close()
    with run.reader("t", group="g") as other:
        assert [m.attempts for m in other.poll_many(2, 0)] == [1, 1]


def test_a_reader_holds_only_so_many_messages(run: Run, batch: Batch) -> None:
    with run.writer("t") as writer, run.reader("t", group="g", max_unacknowledged=2) as reader:
        writer.send_many(batch(n) for n in range(3))
        first, _ = reader.poll_many(9, 0)
        assert reader.poll_many(9, 0) == []
        reader.ack(first)
        assert numbers(reader.poll_many(9, 0)) == [2]


@pytest.mark.warns("STUCK_MESSAGE_REASSIGNED")
def test_messages_that_were_given_up_make_room_once_their_leases_are_over(run: Run, batch: Batch) -> None:
    with run.writer("t") as writer, run.reader("t", group="g", claim_timeout=0.3, max_unacknowledged=2) as reader:
        writer.send_many(batch(n) for n in range(4))
        assert numbers(reader.poll_many(10, 0)) == [0, 1]
        with run.reader("t", group="g") as other:
            done: list[Message] = []
            while len(done) < 4:  # 0 and 1 too, that nobody works on
                done += (messages := other.poll_many(4, 10))
                assert all(other.ack_many(messages))
            writer.send(batch(4))
            assert numbers(reader.poll_many(10, 10)) == [4]


@pytest.mark.warns("STALE_ACK_REJECTED")
def test_a_message_can_be_released_by_hand_with_plain_sql(run: Run, batch: Batch) -> None:
    with run.writer("t") as writer, run.reader("t", group="g") as stuck, run.reader("t", group="g") as other:
        writer.send(batch(1))
        message = stuck.poll(0)
        assert message is not None
        with run.transaction() as transaction:
            transaction.execute_script("UPDATE topic_consumer_group SET claimed_by = NULL, claimed_at = NULL")
        assert drain(other) == [1]
        assert stuck.ack(message) is False


def test_a_publish_joins_the_callers_transaction(run: Run, batch: Batch) -> None:
    with run.writer("t") as writer, run.reader("t", group="g") as reader:
        with pytest.raises(RuntimeError, match="changed my mind"), run.transaction() as transaction:
            writer.send(batch(1), connection=transaction)
            raise RuntimeError("changed my mind")
        with run.transaction() as transaction:
            writer.send_many([batch(2), batch(3)], connection=transaction)
        assert drain(reader) == [2, 3]
        assert run.monitor.snapshot()["messages_published"] == 2


def test_of_messages_that_are_sent_again_only_the_missing_are_stored(run: Run, batch: Batch) -> None:
    sent = wrap_all((batch(n) for n in range(5)), run.now_ms())
    with run.writer("t") as writer, run.reader("t", group="g") as reader:
        writer.forward(sent[1:3])
        writer.forward(sent)
        with run.transaction() as transaction:
            writer.forward(sent, connection=transaction)
            writer.send(batch(5), connection=transaction)
        assert drain(reader) == [1, 2, 0, 3, 4, 5]
        assert run.monitor.snapshot()["messages_published"] == 6
        assert writer.monitor.snapshot()["messages_sent"] == 6


def test_claims_of_several_deliveries_are_acknowledged_together(run: Run, batch: Batch) -> None:
    with run.writer("t") as writer, run.reader("t", group="g") as reader:
        writer.send_many(batch(n) for n in range(4))
        reader.release(reader.poll_many(2, 0))
        messages = reader.poll_many(4, 0)
        assert [message.claim_version for message in messages] == [2, 2, 1, 1]
        assert reader.ack_many(messages) == [True] * 4
        assert reader.ack_many(messages) == [True] * 4
        assert run.groups.list()[0].lag == 0


def test_an_ack_joins_the_callers_transaction(run: Run, batch: Batch) -> None:
    processed = run.processed("EnvironmentIndexer")
    with run.writer("t") as writer, run.reader("t", group="g") as reader:
        writer.send(batch(1))
        message = reader.poll(0)
        assert message is not None
        with pytest.raises(RuntimeError), run.transaction() as transaction:
            assert reader.ack_many([message], connection=transaction) == [True]
            processed.mark(["k1"], connection=transaction)
            raise RuntimeError
        assert not processed.contains("k1")
        with run.transaction() as transaction:
            assert reader.ack_many([message], connection=transaction) == [True]
            processed.mark(["k1"], connection=transaction)
        assert processed.contains("k1")
        assert not run.processed("OrganismIndexer").contains("k1")
        reader.close()
    with run.reader("t", group="g") as again:
        assert again.poll(0) is None


def test_marking_a_batch_processed_twice_is_harmless(run: Run) -> None:
    processed = run.processed("EnvironmentIndexer")
    processed.mark(["a", "b"])
    processed.mark(["b", "c"])
    assert [processed.contains(batch_id) for batch_id in "abcd"] == [True, True, True, False]


def test_poll_gives_up_after_its_timeout(run: Run) -> None:
    with run.reader("t", group="g") as reader:
        assert reader.poll(0.05) is None
        assert reader.poll_many(5, 0.05) == []


def test_poll_gives_up_after_its_timeout_also_while_another_topic_is_busy(run: Run, batch: Batch) -> None:
    with run.writer("busy") as writer, run.reader("t", group="g") as reader:
        done = threading.Event()
        polling = threading.Thread(target=lambda: (reader.poll(0.5), done.set()))
        polling.start()
        for number in range(1000):
            writer.send(batch(number))
            if done.wait(0.01):
                break
        assert done.is_set()
        polling.join()


def test_a_reader_waits_also_where_a_thousand_files_are_open(run: Run, batch: Batch) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2000:
        pytest.skip("this machine allows no 2,000 open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2000), hard))
    try:
        with run.writer("t") as writer, run.reader("t", group="g") as reader, ExitStack() as files:
            for _ in range(1100):
                files.callback(os.close, os.open(os.devnull, os.O_RDONLY))
            assert reader.poll(0.05) is None
            writer.send(batch(1))
            assert reader.poll(10) is not None
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_an_idle_reader_asks_nothing_while_it_waits(run: Run, batch: Batch, eventually: Callable[..., None]) -> None:
    """It looks when it begins and when it ends. A hint that comes late, of a message it has, may cost one look more."""
    with run.writer("t") as writer, run.reader("t", group="g", claim_timeout=0) as reader:

        def looks() -> int:
            before = reader.monitor.counter("claim_attempts").value
            assert reader.poll(1.2) is None
            return reader.monitor.counter("claim_attempts").value - before

        for _ in ("holding nothing", "holding a message"):
            eventually(lambda: looks() == 2, timeout=30)
            writer.send(batch(1))
            assert reader.poll(1) is not None


def test_an_idle_reader_is_woken_by_the_write(run: Run, batch: Batch) -> None:
    got: list[Message] = []
    with run.writer("t") as writer, run.reader("t", group="a") as a, run.reader("t", group="b") as b:
        waiting = [threading.Thread(target=lambda r=r: got.append(r.receive())) for r in (a, b)]
        for thread in waiting:
            thread.start()
        writer.send(batch(1))
        for thread in waiting:
            thread.join(10)
    assert numbers(got) == [1, 1]


@pytest.mark.warns("STUCK_MESSAGE_REASSIGNED")
def test_a_waiting_reader_wakes_itself_when_a_claim_expires(run: Run, batch: Batch) -> None:
    with run.writer("t") as writer, run.reader("t", group="g", claim_timeout=0.3) as dead:
        writer.send(batch(1))
        assert dead.poll(0)
        with run.reader("t", group="g") as reader:
            assert reader.poll(10) is not None


def test_a_release_wakes_a_waiting_reader(run: Run, batch: Batch) -> None:
    with run.writer("t") as writer, run.reader("t", group="g") as holder, run.reader("t", group="g") as other:
        writer.send(batch(1))
        message = holder.poll(0)
        assert message is not None
        got: list[Message] = []
        waiting = threading.Thread(target=lambda: got.append(other.receive()))
        waiting.start()
        holder.release([message])
        waiting.join(10)
    assert numbers(got) == [1]


def test_a_waiting_reader_can_be_woken_from_outside(run: Run) -> None:
    got: list[list[Message]] = []
    with run.reader("t", group="g") as reader:
        waiting = threading.Thread(target=lambda: got.append(reader.poll_many(5, 60)))
        waiting.start()
        reader.wake()
        waiting.join(10)
    assert got == [[]]


def test_closing_a_reader_ends_its_receive(run: Run) -> None:
    for _ in range(50):  # at any moment of its wait
        ended = threading.Event()
        reader = run.reader("t", group="g")

        def wait(reader: TopicReader = reader, ended: threading.Event = ended) -> None:
            with pytest.raises(TopicClosed):
                reader.receive()
            ended.set()

        waiting = threading.Thread(target=wait)
        waiting.start()
        reader.close()
        assert ended.wait(10)


def test_many_threads_send_and_nothing_is_lost(run: Run, batch: Batch) -> None:
    with run.writer("t") as writer, run.reader("t", group="g") as reader:
        threads = [
            threading.Thread(target=lambda start=start: [writer.send(batch(n)) for n in range(start, start + 25)])
            for start in range(0, 200, 25)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = drain(reader)
    assert sorted(found) == list(range(200))
    assert all([n for n in found if n // 25 == k] == list(range(25 * k, 25 * k + 25)) for k in range(8))


def test_the_figures_are_counted(run: Run, batch: Batch) -> None:
    with run.writer("t") as writer, run.reader("t", group="g") as reader:
        writer.send_many(batch(n) for n in range(5))
        assert drain(reader) == list(range(5))
        assert writer.monitor.snapshot()["messages_sent"] == 5
        assert reader.monitor.snapshot()["messages_received"] == 5
    snapshot = run.monitor.snapshot()
    assert [snapshot[f"messages_{what}"] for what in ("published", "received", "acknowledged")] == [5, 5, 5]
    assert snapshot["write_throughput_per_sec"] > 0
    assert snapshot["pool_total_connections"] >= 1
    assert snapshot["healthy"] is True


def test_rates_are_measured_over_the_window_that_was_asked_for(
    database_url: str, run: Run, batch: Batch, eventually: Callable[..., None]
) -> None:
    with Database(database_url, metrics_window_seconds=0.2) as database:
        again = database.run(run.id)
        with again.writer("t") as writer, again.reader("t", group="g") as reader:
            writer.send(batch(1))
            assert reader.poll(10) is not None
            rates = [monitor.window("write_throughput_per_sec") for monitor in (again.monitor, writer.monitor)]
            rates.append(reader.monitor.window("read_throughput_per_sec"))
            eventually(lambda: all(rate.total == 0 for rate in rates), timeout=10)
    with pytest.raises(InvalidOption):
        Database(database_url, metrics_window_seconds=0)


def test_statements_are_counted_whether_they_write_read_or_fail(run: Run, batch: Batch) -> None:
    def executed() -> int:
        return run.monitor.snapshot()["queries_executed"]

    with run.writer("t") as writer:
        writer.send(batch(1))
        sent = executed()
        assert sent > 0
        writer.send(batch(2))
    assert executed() > sent
    before = executed()
    run.topics()
    assert executed() > before
    before = executed()
    with pytest.raises(ZeroDivisionError), run.transaction() as transaction:
        transaction.sql("ticklake.database").version_of_package(package="ticklake.topics")
        raise ZeroDivisionError
    assert executed() == before + 1


def test_looks_in_vain_are_a_share_of_the_window_not_of_the_whole_life(
    database_url: str, run: Run, eventually: Callable[..., None]
) -> None:
    with Database(database_url, metrics_window_seconds=0.5) as database:
        again = database.run(run.id)
        with again.reader("t", group="g") as reader:
            seen: list[float] = []

            def woken_in_vain() -> bool:
                with again.transaction() as transaction:
                    transaction.notify("t")
                assert reader.poll(0.05) is None
                seen.append(reader.monitor.snapshot()["claim_conflict_ratio"])
                return reader.monitor.counter("claim_conflicts").value > 0

            eventually(woken_in_vain, timeout=30)
            assert 0 < max(seen) <= 1
            eventually(lambda: reader.monitor.snapshot()["claim_conflict_ratio"] == 0, timeout=10)


@pytest.mark.parametrize("group", ["", "  ", None])
def test_a_reader_must_name_its_group(run: Run, group: str) -> None:
    with pytest.raises(MissingConsumerGroup, match=r"topic-read:batch-topic\?consumerGroup=GROUP"):
        run.reader("batch-topic", group=group)


@pytest.mark.parametrize(
    "options",
    [
        {"claim_timeout": -1},
        {"claim_timeout": float("nan")},
        {"max_delivery_attempts": 0},
        {"max_unacknowledged": 0},
        {"start": "middle"},
    ],
)
def test_an_impossible_option_is_refused(run: Run, options: dict[str, float]) -> None:
    with pytest.raises(InvalidOption, match=next(iter(options))):
        run.reader("t", group="g", **options)  # type: ignore[arg-type]


def test_only_protobuf_messages_are_accepted(run: Run) -> None:
    with run.writer("t") as writer, pytest.raises(NotAMessage, match="dict"):
        writer.send({"tick": 1})  # type: ignore[arg-type]


def test_sending_nothing_is_nothing(run: Run) -> None:
    with run.writer("t") as writer, run.reader("t", group="g") as reader:
        assert writer.send_many([]) == []
        assert reader.ack_many([]) == reader.extend([]) == reader.release([]) == []


@pytest.mark.parametrize("how", ["release", "fail"])
@pytest.mark.warns("Waiting for the database")
def test_a_claim_that_could_not_be_given_back_is_given_back_when_the_reader_is_closed(
    run: Run, batch: Batch, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    with run.writer("t") as writer:
        writer.send_many([batch(1), batch(2)])
    reader = run.reader("t", group="g")
    first, kept = reader.poll_many(2, 0)
    with monkeypatch.context() as patched:
        patched.setattr(type(reader._store), "release", _away)
        patched.setattr(retry, "MOST_ABORTED", 1)
        with pytest.raises(TransactionAborted):
            reader.release([first]) if how == "release" else reader.fail(first, "bad")
    reader.ack(kept)
    reader.close()
    with run.reader("t", group="g") as other:
        assert [message.id for message in other.poll_many(2, 0)] == [first.id]


def _away(*_: object, **__: object) -> None:
    raise TransactionAborted(database="d", reason="it is away")


def test_a_closed_end_says_so(run: Run, batch: Batch) -> None:
    writer, reader = run.writer("t"), run.reader("t", group="g")
    writer.close()
    reader.close()
    with pytest.raises(TopicClosed, match="writer"):
        writer.send(batch(1))
    with pytest.raises(TopicClosed, match="reader"):
        reader.poll(0)


def test_a_transaction_of_another_run_is_refused(database: Database, run: Run, batch: Batch) -> None:
    other = database.run(run.id + "0")
    with run.writer("t") as writer, run.reader("t", group="g") as reader:
        writer.send(batch(1))
        message = reader.poll(0)
        assert message is not None
        with other.transaction() as transaction:
            with pytest.raises(OtherRun, match=run.id):
                writer.send(batch(2), connection=transaction)
            with pytest.raises(OtherRun):
                reader.ack_many([message], connection=transaction)


def test_what_a_savepoint_undoes_has_not_happened(run: Run) -> None:
    with run.writer("t") as writer, run.reader("t", group="g", claim_timeout=0) as reader:
        writer.send(BatchInfo(tick_start=1))
        message = reader.receive()
        published = run.monitor.snapshot()["messages_published"]
        with run.transaction() as transaction:
            writer.send(BatchInfo(tick_start=2), connection=transaction)
            with pytest.raises(ZeroDivisionError), transaction.savepoint():
                writer.send(BatchInfo(tick_start=3), connection=transaction)
                reader.ack_many([message], connection=transaction)
                1 / 0  # noqa: B018
        assert run.monitor.snapshot()["messages_published"] == published + 1
        assert run.monitor.snapshot()["messages_acknowledged"] == 0
    with run.reader("t", group="g") as reader:
        found = [reader.receive(), reader.receive()]
    assert [message.payload.tick_start for message in found] == [1, 2], "the first reader gave its message back"


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_reader_is_woken_after_a_savepoint_was_undone(run: Run, database_url: str) -> None:
    del database_url
    with run.writer("t") as writer:
        writer.send(BatchInfo())
        listener = run.listen("t")
        with run.transaction() as transaction:
            with pytest.raises(ZeroDivisionError), transaction.savepoint():
                writer.send(BatchInfo(), connection=transaction)
                1 / 0  # noqa: B018
            writer.send(BatchInfo(), connection=transaction)
        assert isinstance(listener, HintListener)
        assert readable([listener._socket], 0), "the hint is there with the commit"
        listener.close()


@pytest.mark.warns("DEAD_LETTER", "STUCK_MESSAGE_REASSIGNED")
def test_dead_letters_do_not_hide_what_is_redelivered_alone(run: Run, batch: Batch) -> None:
    options = {"max_delivery_attempts": 2, "redeliver_alone": True}
    with run.writer("t") as writer, run.reader("t", group="g", claim_timeout=0.001) as dies:
        writer.send_many(batch(number) for number in range(3))
        for _ in range(2):
            assert len(dies.poll_many(3, 5)) == 3
        writer.send_many(batch(number) for number in range(3, 5))
        with run.reader("t", group="g", **options) as reader:  # type: ignore[arg-type]
            found = [m.payload.tick_start for _ in range(4) for m in reader.poll_many(10, 0)]
    assert found == [3, 4]
    assert len(run.dead_letters.list()) == 3


@pytest.mark.parametrize(
    "script", ["SAVEPOINT a", "SELECT 1; RELEASE SAVEPOINT a", "ROLLBACK TO a", "rollback transaction to savepoint a"]
)
def test_raw_statements_about_savepoints_are_refused(run: Run, batch: Batch, script: str) -> None:
    """They would undo rows, but not what was planned for after the commit."""
    with run.writer("t") as writer, run.transaction() as transaction:
        writer.send(batch(1), connection=transaction)
        with pytest.raises(StatementOfSavepoint, match=r"with tx\.savepoint\(\)"):
            transaction.execute_script(script)
        with pytest.raises(StatementOfSavepoint):
            transaction.execute(script, {})
    assert len(run.browse("t")) == run.monitor.snapshot()["messages_published"] == 1


def test_a_send_inside_of_ones_own_transaction_is_refused(run: Run, batch: Batch) -> None:
    """Without `connection=` it needs another connection. If all threads did this, each would wait for the others."""
    with run.writer("t") as writer:
        with run.transaction() as transaction:
            with pytest.raises(NestedTransaction, match="connection="):
                writer.send(batch(0))
            with ThreadPoolExecutor(1) as pool:
                sent = pool.submit(writer.send, batch(1)) if transaction.dialect == "postgres" else None
                assert sent is None or sent.result(30), "another thread may send"
            writer.send(batch(2), connection=transaction)
        with run.reading():
            writer.send(batch(3))
        writer.send(batch(4))
    assert {m.payload.tick_start for s in run.browse("t") if (m := s.opened())} - {1} == {2, 3, 4}  # type: ignore[attr-defined]


_AUDIT = {
    "sqlite": "CREATE TABLE audit (message_id TEXT);"
    "CREATE TRIGGER acked AFTER UPDATE OF acknowledged_at ON topic_consumer_group"
    " BEGIN INSERT INTO audit VALUES (new.message_id); END;"
    "CREATE TRIGGER published AFTER INSERT ON topic_messages BEGIN INSERT INTO audit VALUES (new.message_id); END;",
    "postgres": "CREATE TABLE audit (message_id TEXT);"
    "CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql"
    " AS $$ BEGIN INSERT INTO audit VALUES (new.message_id); RETURN new; END $$;"
    "CREATE TRIGGER acked AFTER UPDATE OF acknowledged_at ON topic_consumer_group"
    " FOR EACH ROW EXECUTE FUNCTION audit();"
    "CREATE TRIGGER published AFTER INSERT ON topic_messages FOR EACH ROW EXECUTE FUNCTION audit()",
}


@pytest.mark.warns("STUCK_MESSAGE_REASSIGNED", "STALE_ACK_REJECTED")
def test_rows_that_triggers_write_are_not_counted(run: Run, batch: Batch, pass_time: Callable[[float], None]) -> None:
    """A stale ack next to a held one was taken for both."""
    with run.transaction() as transaction:
        transaction.execute_script(_AUDIT[transaction.dialect])
    known = wrap(batch(1), 1)
    with run.writer("t") as writer, run.reader("t", group="g", claim_timeout=10) as reader:
        writer.forward([known])
        writer.forward([known, wrap(batch(2), 1), known])
        assert run.monitor.snapshot()["messages_published"] == 2
        lost, held = reader.poll_many(2, 0)
        pass_time(11)
        with run.reader("t", group="g") as other:
            taken = other.poll(0)
            assert taken is not None
            assert taken.id == lost.id
            assert reader.ack_many([lost, held]) == [False, True]
            assert run.monitor.snapshot()["messages_acknowledged"] == 1
            assert other.ack(taken)


@pytest.mark.warns("STALE_ACK_REJECTED")
def test_a_stale_ack_counts_when_its_transaction_commits(run: Run, batch: Batch) -> None:
    """A consumer repeats a transaction that failed, and its acks with it."""
    with run.writer("t") as writer, run.reader("t", group="g") as reader:
        writer.send(batch(1))
        messages = reader.poll_many(1, 0)
        reader.release(messages)
        for failures in (1, 0):
            with ExitStack() as stack:
                stack.enter_context(pytest.raises(KeyError)) if failures else None
                transaction = stack.enter_context(run.transaction())
                assert reader.ack_many(messages, connection=transaction) == [False]
                if failures:
                    raise KeyError
            assert run.monitor.snapshot()["stale_acks_rejected"] == 1 - failures


_REFUSE_SECOND = {
    "sqlite": "CREATE TRIGGER refuse BEFORE UPDATE ON topic_consumer_group WHEN old.claim_version = 2 "
    "BEGIN SELECT raise(ABORT, 'not this one'); END",
    "postgres": "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql"
    " AS $$ BEGIN RAISE EXCEPTION 'not this one'; END $$;"
    "CREATE TRIGGER refuse BEFORE UPDATE ON topic_consumer_group"
    " FOR EACH ROW WHEN (old.claim_version = 2) EXECUTE FUNCTION refuse()",
}


@pytest.mark.parametrize("act", [TopicReader.ack_many, TopicReader.extend])
def test_claims_of_several_versions_are_changed_together_or_not_at_all(
    run: Run, batch: Batch, pass_time: Callable[[float], None], act: Callable[..., list[bool]]
) -> None:
    with run.writer("t") as writer, run.reader("t", group="g", claim_timeout=100) as reader:
        writer.send(batch(1))
        reader.release(reader.poll_many(1, 0))
        (second,) = reader.poll_many(1, 0)
        writer.send(batch(2))
        (first,) = reader.poll_many(1, 0)
        assert (first.claim_version, second.claim_version) == (1, 2)
        with run.transaction() as transaction:
            transaction.execute_script(_REFUSE_SECOND[transaction.dialect])
        pass_time(50)
        with pytest.raises(TickLakeError, match="not this one"):
            act(reader, [first, second])
        assert all(claim.expires_in_ms is not None and claim.expires_in_ms < 60_000 for claim in run.claims.list())
        assert len(run.claims.list()) == 2
        with run.transaction() as transaction:
            where = " ON topic_consumer_group" if transaction.dialect == "postgres" else ""
            transaction.execute_script(f"DROP TRIGGER refuse{where}")
        assert act(reader, [second, first]) == [True, True]
