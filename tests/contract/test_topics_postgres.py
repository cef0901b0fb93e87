"""What is PostgreSQL's own: ids that commit out of order, plans, NOTIFY."""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import UTC, datetime
from uuid import uuid4

import psycopg
import pytest

from ticklake import BatchInfo, Database
from ticklake.cli.terminal.frame import Frame
from ticklake.database import Transaction
from ticklake.database.names import schema_name
from ticklake.database.postgres.backend import PostgresTransaction
from ticklake.database.postgres.connection import Connection
from ticklake.doctor.databases import open_transactions
from ticklake.doctor.subject import Store, Subject
from ticklake.errors import DatabaseUnavailable, PoolExhausted, UniqueViolation
from ticklake.insights import Backlogs, Places
from ticklake.topics import Run, TopicReader
from ticklake.topics.store.store import OpenTransaction
from ticklake.web.feeds.lag import sample

PassTime = Callable[[float], None]


@pytest.fixture
def run(postgres_url: str) -> Run:  # type: ignore[misc]
    with Database(postgres_url) as database:
        yield database.run(f"20251014-143025-{uuid4().hex[:8]}")


@pytest.fixture
def elsewhere(postgres_url: str, run: Run) -> Iterator[Run]:
    """The same run as another process has it, which may have a transaction open while this one sends."""
    with Database(postgres_url) as database:
        yield database.run(run.id)


def ticks(reader: TopicReader, limit: int = 100) -> list[int]:
    messages = reader.poll_many(limit, 0)
    assert all(reader.ack_many(messages))
    return [m.payload.tick_start for m in messages]  # type: ignore[attr-defined]


def test_a_message_that_is_written_early_and_committed_late_is_delivered(run: Run, elsewhere: Run) -> None:
    with run.writer("t") as writer, run.reader("t", group="g") as reader:
        with ExitStack() as late:
            first = late.enter_context(elsewhere.transaction())
            writer.send(BatchInfo(tick_start=1), connection=first)
            with ExitStack() as later_still:
                second = later_still.enter_context(elsewhere.transaction())
                writer.send(BatchInfo(tick_start=2), connection=second)
                writer.send_many(BatchInfo(tick_start=n) for n in range(3, 10))
                assert ticks(reader) == [3, 4, 5, 6, 7, 8, 9]
                assert ticks(reader) == []
                writer.send_many([BatchInfo(tick_start=10)])
                assert ticks(reader) == [10]
            assert ticks(reader) == [2]
            writer.send_many([BatchInfo(tick_start=11)])
            assert ticks(reader) == [11]
        assert run.groups.list()[0].lag == 1
        assert ticks(reader) == [1]
        assert run.groups.list()[0].lag == 0


@pytest.mark.warns("DEAD_LETTER")
def test_what_commits_while_a_claim_is_under_way_is_delivered(
    run: Run, elsewhere: Run, postgres_url: str, eventually: Callable[..., None]
) -> None:
    """The claim is held where it makes a dead letter; then a message gets the lower id and commits last."""
    with (
        run.writer("t") as writer,
        run.reader("t", group="g", max_delivery_attempts=2) as reader,
        psycopg.connect(postgres_url) as blocker,
    ):
        writer.send(BatchInfo(tick_start=0))
        assert not reader.fail(reader.receive(), "once")
        with run.transaction() as transaction:
            transaction.execute_script("UPDATE topic_consumer_group SET attempts = 2")
        with elsewhere.transaction() as slow:
            blocker.execute(f'LOCK TABLE "{schema_name(run.id)}".topic_dead_letters IN EXCLUSIVE MODE')
            got: list[list[int]] = []
            claiming = threading.Thread(target=lambda: got.append(ticks(reader)))
            claiming.start()
            eventually(lambda: waiting_for(blocker, "topic_dead_letters"))
            writer.send(BatchInfo(tick_start=1), connection=slow)
            writer.send(BatchInfo(tick_start=2))
            blocker.rollback()
            claiming.join(60)
        assert sorted(got[0] + ticks(reader)) == [1, 2]
        assert run.groups.list()[0].lag == 0


def waiting_for(connection: psycopg.Connection[tuple[int]], table: str) -> bool:
    """Does somebody wait for a lock on this table?"""
    found = connection.execute(
        "SELECT count(*) FROM pg_locks JOIN pg_class AS c ON c.oid = relation WHERE NOT granted AND relname = %s",
        (table,),
    ).fetchone()
    return found is not None and found[0] > 0


def test_late_messages_are_delivered_in_small_polls_too(run: Run, elsewhere: Run) -> None:
    with run.writer("t") as writer, run.reader("t", group="g") as reader:
        with elsewhere.transaction() as slow:
            writer.send_many([BatchInfo(tick_start=n) for n in range(3)], connection=slow)
            writer.send_many([BatchInfo(tick_start=n) for n in range(3, 6)])
            assert ticks(reader, 2) == [3, 4]
        assert [ticks(reader, 1) for _ in range(5)] == [[0], [1], [2], [5], []]


def test_retention_keeps_what_was_committed_late(run: Run, elsewhere: Run) -> None:
    with run.writer("t") as writer, run.reader("t", group="g") as reader:
        with elsewhere.transaction() as slow:
            writer.send(BatchInfo(tick_start=1), connection=slow)
            writer.send(BatchInfo(tick_start=2))
            assert ticks(reader) == [2]
        assert run.remove_outdated("t", max_count=0) == 1
        assert ticks(reader) == [1]


def test_a_group_set_to_the_end_gets_what_commits_afterwards(run: Run, elsewhere: Run) -> None:
    with run.writer("t") as writer, run.reader("t", group="g") as reader:
        with elsewhere.transaction() as slow:
            writer.send(BatchInfo(tick_start=1), connection=slow)
            writer.send(BatchInfo(tick_start=2))
            run.groups.reset("t", "g", "end")
        assert ticks(reader) == [1]


def test_what_commits_while_a_group_is_set_to_a_time_is_delivered(
    run: Run, elsewhere: Run, postgres_url: str, eventually: Callable[..., None]
) -> None:
    """The reset is held, where it can be, between finding the position and setting it."""
    begin = datetime.fromtimestamp(0, UTC)
    with (
        run.writer("t") as writer,
        run.reader("t", group="g") as reader,
        psycopg.connect(postgres_url) as blocker,
    ):
        resetting = threading.Thread(target=lambda: run.groups.reset("t", "g", begin))
        with elsewhere.transaction() as slow:
            writer.send(BatchInfo(tick_start=1), connection=slow)
            writer.send(BatchInfo(tick_start=2))
            blocker.execute(f'LOCK TABLE "{schema_name(run.id)}".topic_dead_letters IN ACCESS EXCLUSIVE MODE')
            resetting.start()
            eventually(lambda: waiting_for(blocker, "topic_dead_letters") or not resetting.is_alive())
        blocker.rollback()
        resetting.join(60)
        assert sorted(ticks(reader)) == [1, 2]


def test_a_rolled_back_message_leaves_no_hole_that_blocks(run: Run) -> None:
    with run.writer("t") as writer, run.reader("t", group="g") as reader:
        with pytest.raises(RuntimeError), run.transaction() as doomed:
            writer.send(BatchInfo(tick_start=1), connection=doomed)
            raise RuntimeError
        writer.send(BatchInfo(tick_start=2))
        assert ticks(reader) == [2]


def test_an_open_transaction_over_claims_blocks_nobody(run: Run) -> None:
    with run.writer("t") as writer, run.reader("t", group="g", claim_timeout=0.001) as a:
        writer.send_many(BatchInfo(tick_start=n) for n in range(4))
        held = a.poll_many(2, 0)
        with run.transaction() as slow:
            assert a.ack_many(held, connection=slow) == [True, True]
            with run.reader("t", group="g") as b, ThreadPoolExecutor(1) as other:
                assert other.submit(ticks, b).result(60) == [2, 3]
        assert run.groups.list()[0].lag == 0


def test_an_expired_claim_that_is_locked_is_waited_for_without_spinning(run: Run) -> None:
    with run.writer("t") as writer, run.reader("t", group="g", claim_timeout=0.01) as slow:
        writer.send(BatchInfo(tick_start=1))
        message = slow.receive()
        with run.reader("t", group="g") as reader:
            with run.transaction() as transaction:
                assert slow.ack_many([message], connection=transaction) == [True]
                assert reader.poll(1) is None
            assert reader.monitor.counter("claim_attempts").value < 30


def test_the_connection_that_came_back_last_is_used_next(run: Run) -> None:
    """Taking turns would have each of them find its server process cold."""

    def server_process(transaction: Transaction) -> int:
        return int(transaction.execute("SELECT pg_backend_pid()", {})[0][0])

    with run.transaction() as first, run.transaction() as second:
        assert server_process(first) != server_process(second)
        last = server_process(first)
    for _ in range(5):
        with run.transaction() as transaction:
            assert server_process(transaction) == last


FILL = """
    INSERT INTO topic_messages (topic_name, message_id, timestamp, envelope)
    SELECT 't', 'm' || lpad(n::text, 9, '0'), 0, '\\x' FROM generate_series(1, {count}) AS n;
    INSERT INTO topic_groups (topic_name, consumer_group) SELECT 't', g FROM unnest(ARRAY['fresh', 'acked']) AS g;
    INSERT INTO topic_positions (topic_name, consumer_group, frontier, seen)
    SELECT 't', g, CASE WHEN g = 'fresh' THEN 0 ELSE {count} END, pg_current_snapshot()
    FROM unnest(ARRAY['fresh', 'acked']) AS g;
    INSERT INTO topic_consumer_group
        (topic_name, consumer_group, message_id, id, claimed_by, claimed_at, acknowledged_at, lease_until)
    SELECT topic_name, 'acked', message_id, id, 'c', now(), CASE WHEN id > 1 THEN now() END, 1e15::bigint
    FROM topic_messages;
    ANALYZE topic_messages; ANALYZE topic_consumer_group;
"""
SCANS = """SELECT coalesce(sum(seq_tup_read), 0)::bigint FROM pg_stat_xact_user_tables
    WHERE schemaname = current_schema() AND relname IN ('topic_messages', 'topic_consumer_group')"""


@pytest.mark.parametrize("count", [1_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_claims_and_acks_read_no_table_from_end_to_end(run: Run, count: int) -> None:
    """Also with everything acknowledged and one old message still open at the very beginning."""
    with run.transaction(durable=False) as transaction:
        transaction.execute_script(FILL.format(count=count))
    for group in ("fresh", "acked"):
        with run.transaction(durable=False) as transaction:
            sql = transaction.sql("ticklake.topics")
            ((before,),) = transaction.execute(SCANS, {})
            who = {"topic": "t", "group": group, "consumer": "me"}
            rows = sql.claim(**who, lease_ms=1000, max_attempts=5, limit=10, alone=False)
            assert len(rows) == (10 if group == "fresh" else 0)
            sql.look(topic="t", group=group)
            ((acked,),) = sql.ack(**who, message_ids=json.dumps([row[0] for row in rows]), version=1)
            assert acked == len(rows)
            ((after,),) = transaction.execute(SCANS, {})
            assert after - before == 0


READ = SCANS.replace("sum(seq_tup_read)", "sum(seq_tup_read + idx_tup_fetch)")


@pytest.mark.parametrize("count", [1_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_a_late_message_is_found_without_a_walk_through_what_came_before_it(
    run: Run, elsewhere: Run, count: int
) -> None:
    with run.transaction(durable=False) as transaction:
        transaction.execute_script(FILL.format(count=count))
    with run.writer("t") as writer, run.reader("t", group="acked") as reader:
        with elsewhere.transaction() as slow:
            writer.send(BatchInfo(tick_start=1), connection=slow)
            writer.send_many(BatchInfo(tick_start=n) for n in range(2, 5))
            assert ticks(reader) == [2, 3, 4]
        with run.transaction(durable=False) as transaction:
            ((before,),) = transaction.execute(READ, {})
            who = {"topic": "t", "group": "acked", "consumer": "me"}
            assert (
                len(
                    transaction.sql("ticklake.topics").claim(
                        **who, lease_ms=1000, max_attempts=5, limit=10, alone=False
                    )
                )
                == 1
            )
            ((after,),) = transaction.execute(READ, {})
            assert after - before < 50


@pytest.mark.parametrize("count", [20_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_the_lag_of_a_group_is_told_without_a_walk_through_history(run: Run, elsewhere: Run, count: int) -> None:
    with run.transaction(durable=False) as transaction:
        transaction.execute_script(FILL.format(count=count) + "DELETE FROM topic_groups WHERE consumer_group = 'fresh'")
    with run.writer("t") as writer, run.reader("t", group="acked") as reader, elsewhere.transaction() as slow:
        writer.send(BatchInfo(tick_start=1), connection=slow)
        writer.send(BatchInfo(tick_start=2))
        assert ticks(reader) == [2]
    with run.transaction(durable=False) as transaction:
        ((before,),) = transaction.execute(READ, {})
        (group,) = transaction.sql("ticklake.topics").groups(topic=None, limit=10_000)
        assert group[3] == 1
        ((after,),) = transaction.execute(READ, {})
        assert after - before < 50


CLAIM = "SELECT * FROM topic_claim('t', 'g', 'me', {lease_ms}, 5, {limit})"
ACK = """UPDATE topic_consumer_group SET acknowledged_at = now_at()
    WHERE topic_name = 't' AND consumer_group = 'g' AND acknowledged_at IS NULL"""
CLAIM_AND_ACK = "DO $$ BEGIN FOR n IN 1..{times} LOOP PERFORM * FROM ({claim}) AS c; {ack}; COMMIT; END LOOP; END $$"


class Beside:
    """A consumer beside a foreign transaction, which keeps vacuum from removing what claims and acks leave behind."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self.connection = connection

    def forget_plans(self) -> None:
        """As a process that starts now; nothing is known of the tables yet, as before their first ANALYZE."""
        self.connection.execute("DISCARD PLANS")

    def pages(self, lease_ms: int, then: str = ACK) -> int:
        """How many pages a claim looks at."""
        claim = CLAIM.format(lease_ms=lease_ms, limit=1)
        rows = self.connection.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {claim}")
        (plan,) = rows.fetchone()  # type: ignore[misc]
        self.connection.execute(then)
        return int(plan[0]["Plan"]["Shared Hit Blocks"] + plan[0]["Plan"]["Shared Read Blocks"])

    def least(self, lease_ms: int) -> int:
        return min(self.pages(lease_ms) for _ in range(5))

    def claim_and_ack(self, times: int, lease_ms: int, limit: int = 1) -> None:
        claim = CLAIM.format(lease_ms=lease_ms, limit=limit)
        self.connection.execute(CLAIM_AND_ACK.format(times=times, claim=claim, ack=ACK))

    def soon(self, most: int, pages: Callable[[], int]) -> bool:
        """Once a second a claim looks through all that is open; until then the last second's claims are in its way."""
        looks = (self.connection.execute("SELECT pg_sleep(0.1)") and pages() for _ in range(50))
        return any(found < most for found in looks)


@pytest.fixture
def beside(run: Run, postgres_url: str) -> Iterator[Beside]:
    with run.writer("t") as writer, run.reader("t", group="g"):
        writer.send_many(BatchInfo(tick_start=n) for n in range(1500))
    with psycopg.connect(postgres_url, autocommit=True) as connection, psycopg.connect(postgres_url) as foreign:
        connection.execute(f'SET search_path = "{schema_name(run.id)}"')
        foreign.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        foreign.execute("SELECT 1 FROM pg_class LIMIT 1")
        yield Beside(connection)


@pytest.mark.parametrize("lease_ms", [300_000, 1], ids=["long leases", "leases that are over"])
def test_a_claim_costs_the_same_while_a_foreign_transaction_is_open(beside: Beside, lease_ms: int) -> None:
    before = beside.least(lease_ms)
    beside.claim_and_ack(1200, lease_ms)
    assert beside.soon(before + 12, lambda: beside.pages(lease_ms))


@pytest.mark.parametrize("delay", [0.0, 0.001], ids=["at once", "after a delay"])
def test_a_claim_costs_the_same_after_many_releases_beside_a_foreign_transaction(
    run: Run, beside: Beside, delay: float
) -> None:
    before = beside.least(300_000)
    with run.reader("t", group="g") as reader:
        for _ in range(12):
            messages = reader.poll_many(1400, 20)
            assert len(messages) == 1400
            reader.release(messages, delay=delay)
        assert len(reader.poll_many(1400, 20)) == 1400
        beside.connection.execute(ACK)
        beside.forget_plans()
        assert beside.soon(before + 12, lambda: beside.pages(300_000))


def test_a_claim_passes_by_what_was_given_back_for_long(run: Run, beside: Beside) -> None:
    """Once a second it is all looked through."""
    before = beside.least(300_000)
    with run.reader("t", group="g", max_unacknowledged=1400) as reader:
        reader.release(reader.poll_many(1400, 20), delay=3600)
    beside.forget_plans()
    pages = sorted(beside.pages(300_000, then=ACK + " AND claimed_by = 'me'") for _ in range(20))
    assert pages[10] < before + 12, pages


def test_a_claim_of_a_released_message_costs_the_same_after_many_of_them(run: Run, beside: Beside) -> None:
    """Beside a foreign transaction, and also if nothing new comes meanwhile."""
    with run.reader("t", group="g") as reader:
        held = iter(reader.poll_many(1500, 20))

        def pages() -> int:
            """A message is released, claimed, and acknowledged."""
            reader.release([next(held)])
            return beside.pages(300_000, then=ACK + " AND claimed_by = 'me'")

        before = min(pages() for _ in range(5))
        for _ in range(1000):
            pages()
        assert beside.soon(before + 12, pages)


def test_a_claim_of_a_redelivered_message_alone_costs_the_same_however_many_there_are(run: Run, beside: Beside) -> None:
    alone = "SELECT * FROM topic_claim('t', 'g', 'me', 300000, 3, 100, true)"
    with run.reader("t", group="g") as reader:
        for message in reader.poll_many(1000, 20):
            reader.fail(message, "once")

        def pages() -> int:
            rows = beside.connection.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {alone}")
            (plan,) = rows.fetchone()  # type: ignore[misc]
            assert plan[0]["Plan"]["Actual Rows"] == 1
            beside.connection.execute(ACK + " AND claimed_by = 'me'")
            return int(plan[0]["Plan"]["Shared Hit Blocks"] + plan[0]["Plan"]["Shared Read Blocks"])

        assert min(pages() for _ in range(20)) < 250


def test_a_claim_costs_the_same_if_others_of_its_group_have_longer_leases(beside: Beside) -> None:
    before = beside.least(5000)
    beside.claim_and_ack(1000, 300_000)
    assert beside.soon(before + 12, lambda: beside.pages(5000))


ACK_MINE = ACK + " AND claimed_by = 'me'"
SWEPT = "UPDATE topic_positions SET swept_ms = {ms}"
PAST = -3_600_000
"""A lease that ended long ago. What is left of it beside a foreign transaction is read by a sweep only."""


@pytest.fixture
def swept(beside: Beside) -> Callable[[float, int], bool]:
    """Whether a claim sweeps, if the last look is two seconds old, and the last sweep so old, and took so long."""
    before = beside.least(PAST)
    beside.claim_and_ack(1200, PAST)

    def look(seconds: float, ms: int) -> bool:
        age = "UPDATE topic_positions SET looked_at = now_ms() - 2000, swept_at = now_ms() - %s, swept_ms = %s"
        beside.connection.execute(age, (round(seconds * 1000), ms))
        pages = beside.pages(PAST)
        assert pages < before + 15 or pages > before + 30, (before, pages)
        return pages > before + 30

    return look


@pytest.mark.parametrize(("ms", "seconds"), [(0, 1), (50, 1), (500, 10), (2500, 50), (3600_000, 60)])
def test_an_expensive_sweep_through_finished_claims_is_repeated_later(
    swept: Callable[[float, int], bool], ms: int, seconds: int
) -> None:
    """After 20 times as long, but at least a second and at most a minute, because a server may be slow only once."""
    assert not swept(seconds - 0.9, ms)
    assert swept(seconds + 0.9, ms)
    assert swept(-1.0, ms), "the clock was set back"


def test_a_reader_of_finished_claims_wakes_up_for_the_next_sweep(run: Run, beside: Beside) -> None:
    """It reads nothing that the last claim has read."""
    beside.claim_and_ack(1200, PAST)
    beside.connection.execute("UPDATE topic_positions SET swept_ms = 500, swept_at = now_ms(), looked_at = now_ms()")
    with run.reading() as view:
        ((wait_ms,),) = view.sql("ticklake.topics").look(topic="t", group="g")
    assert 5000 < wait_ms <= 10_000


def test_a_message_that_was_freed_behind_the_last_look_is_found_by_the_next_sweep(
    run: Run, beside: Beside, pass_time: PassTime
) -> None:
    """A transaction that was open for long, or plain SQL, may free a message with an `available_at` that was read."""
    free = "UPDATE topic_consumer_group SET claimed_by = NULL, not_before = 1 WHERE message_id = %s"
    with run.reader("t", group="g") as reader:
        (message,) = reader.poll_many(1, 5)
        beside.pages(300_000, then=ACK_MINE)
        beside.connection.execute(SWEPT.format(ms=500))
        pass_time(2)
        beside.pages(300_000, then=ACK_MINE)
        beside.connection.execute(free, (message.id,))
        assert [one.payload.tick_start for one in reader.poll_many(1, 0)] != [0]  # type: ignore[attr-defined]
        pass_time(11)
        assert [one.payload.tick_start for one in reader.poll_many(1, 0)] == [0]  # type: ignore[attr-defined]


@pytest.mark.warns("STUCK_MESSAGE_REASSIGNED")
def test_a_clock_that_is_set_back_causes_a_sweep_at_once(run: Run, beside: Beside, pass_time: PassTime) -> None:
    """A lease that began in the future would otherwise last longer."""
    with run.reader("t", group="g", claim_timeout=5) as reader:
        pass_time(3600)
        (message,) = reader.poll_many(1, 5)
        beside.connection.execute(SWEPT.format(ms=3000))
        pass_time(-3600)
        assert reader.poll_many(1, 5)
        pass_time(6)
        again = [one.id for one in reader.poll_many(10, 0)]
    assert message.id in again


def test_the_transaction_that_holds_vacuum_back_is_named(run: Run, postgres_url: str) -> None:
    with psycopg.connect(postgres_url, application_name="a long report") as foreign:
        foreign.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        foreign.execute("SELECT 1 FROM pg_class LIMIT 1")
        assert run.held_back_by() is None, "it has only just begun"
        held = run.held_back_by(seconds=0)
        assert held is not None
        assert (held.pid, held.name) == (foreign.info.backend_pid, "a long report")
        assert f"a long report (pid {held.pid}) has a transaction open" in str(held)
        assert str(held).endswith("so vacuum removes no dead rows of claims"), "a claim costs the same"


@contextmanager
def autovacuum(connection: psycopg.Connection, eventually: Callable[..., None]) -> Iterator[None]:
    """A worker of the server's own vacuum that takes its time."""
    table = f"slow_{uuid4().hex[:8]}"
    worker = f"SELECT 1 FROM pg_stat_activity WHERE backend_type = 'autovacuum worker' AND query LIKE '%{table}%'"
    pace = "autovacuum_vacuum_cost_delay = 100, autovacuum_vacuum_cost_limit = 1"
    connection.execute(f"CREATE TABLE {table} (a int) WITH (autovacuum_vacuum_insert_threshold = 1, {pace})")
    connection.execute(f"INSERT INTO {table} SELECT generate_series(1, 100_000)")
    try:
        connection.execute("ALTER SYSTEM SET autovacuum_naptime = 1")
        connection.execute("SELECT pg_reload_conf()")
        eventually(lambda: connection.execute(worker).fetchone() is not None)
        yield
        assert connection.execute(worker).fetchone() is not None, "it was there all the while"
    finally:
        connection.execute("ALTER SYSTEM RESET autovacuum_naptime")
        connection.execute("SELECT pg_reload_conf()")
        connection.execute(f"DROP TABLE {table}")


def test_the_vacuum_of_the_server_itself_is_not_named(
    run: Run, postgres_url: str, eventually: Callable[..., None]
) -> None:
    run.topics()
    with (
        psycopg.connect(postgres_url, autocommit=True) as connection,
        autovacuum(connection, eventually),
        psycopg.connect(postgres_url, application_name="a long report") as foreign,
    ):
        foreign.execute("SELECT pg_current_xact_id()")
        held = run.held_back_by(seconds=0)
        assert held is not None and held.pid == foreign.info.backend_pid


@contextmanager
def standby(url: str, slot: str = "") -> Iterator[int]:
    """A standby that has the server keep what was there when it connected, by its process on the server."""
    with psycopg.connect(url, autocommit=True) as connection:
        (seen,) = connection.execute("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint").fetchone() or (0,)
        (position,) = connection.execute("SELECT pg_current_wal_lsn()::text").fetchone() or ("",)
    receiver = psycopg.pq.PGconn.connect(f"{url}&replication=true&application_name=upstairs".encode())
    try:
        receiver.send_query(f"START_REPLICATION {slot and f'SLOT {slot}'} PHYSICAL {position}".encode())
        result = receiver.get_result()
        assert result is not None and result.status == psycopg.pq.ExecStatus.COPY_BOTH
        receiver.put_copy_data(b"h" + struct.pack("!qIIII", 0, seen & 0xFFFFFFFF, seen >> 32, 0, 0))
        receiver.flush()
        yield receiver.backend_pid
    finally:
        receiver.finish()


def test_a_standby_that_holds_vacuum_back_is_named(
    run: Run, postgres_url: str, eventually: Callable[..., None]
) -> None:
    with run.writer("t") as writer, standby(postgres_url) as pid:
        eventually(lambda: writer.send(BatchInfo()) and run.held_back_by(seconds=0) is not None)
        held = run.held_back_by(seconds=0)
        assert held is not None
        assert held.who == f"standby upstairs (pid {pid})"
        assert "standby upstairs" in str(held) and "holds vacuum back" in str(held)
        assert "hot_standby_feedback" in held.remedy


def test_a_replication_slot_that_holds_vacuum_back_is_named_also_while_nobody_uses_it(
    run: Run, postgres_url: str, eventually: Callable[..., None]
) -> None:
    slot = f"slot_{uuid4().hex[:8]}"
    with run.writer("t") as writer, psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("SELECT pg_create_physical_replication_slot(%s, true)", (slot,))
        unused = "SELECT NOT active AND xmin IS NOT NULL FROM pg_replication_slots WHERE slot_name = %s"
        try:
            with standby(postgres_url, slot):
                kept = "SELECT xmin IS NOT NULL FROM pg_replication_slots WHERE slot_name = %s"
                eventually(lambda: connection.execute(kept, (slot,)).fetchone() == (True,))
            eventually(lambda: connection.execute(unused, (slot,)).fetchone() == (True,))
            writer.send(BatchInfo())
            held = run.held_back_by(seconds=0)
            assert held is not None
            assert held.who == f"replication slot {slot}"
            assert f"pg_drop_replication_slot('{slot}')" in held.remedy
        finally:
            eventually(lambda: connection.execute(unused, (slot,)).fetchone() == (True,))
            connection.execute("SELECT pg_drop_replication_slot(%s)", (slot,))


def test_doctor_and_top_name_the_transaction_that_holds_vacuum_back(
    run: Run, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.topics()
    monkeypatch.setattr(Run.held_back_by, "__defaults__", (0.0,))
    with psycopg.connect(postgres_url, application_name="a long report") as foreign:
        foreign.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        foreign.execute("SELECT 1 FROM pg_class LIMIT 1")
        with Subject(stores=(Store(postgres_url),)) as subject:
            (finding,) = open_transactions(subject)
        assert f"a long report (pid {foreign.info.backend_pid})" in finding.message
        assert finding.remedy == f"End it: SELECT pg_terminate_backend({foreign.info.backend_pid})"
        with Database(postgres_url) as database:
            frame = Frame(0.0, Places(databases=[database]).glance(run.id))
        assert any("a long report" in text for text in frame.errors)


@pytest.mark.parametrize(
    ("kind", "remedy"),
    [
        ("session", "SELECT pg_terminate_backend(7)"),
        ("prepared transaction", "ROLLBACK PREPARED 'it''s mine'"),
        ("standby", "hot_standby_feedback = off"),
        ("replication slot", "SELECT pg_drop_replication_slot('it''s mine')"),
    ],
)
def test_doctor_says_how_to_end_what_holds_vacuum_back(
    run: Run, postgres_url: str, monkeypatch: pytest.MonkeyPatch, kind: str, remedy: str
) -> None:
    run.topics()
    monkeypatch.setattr(Run, "held_back_by", lambda _: OpenTransaction(7, "it's mine", 90.0, kind))
    with Subject(stores=(Store(postgres_url),)) as subject:
        (finding,) = open_transactions(subject)
    assert remedy in finding.remedy


def test_a_metric_names_the_transaction_that_holds_vacuum_back(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the metrics are made from, for a node that has this run."""
    run.topics()
    monkeypatch.setattr(Run, "held_back_by", lambda _: OpenTransaction(7, "a long report", 90.0))

    class Known:
        def runs(self) -> list[str]:
            return [run.id]

    class Stored:
        url = "postgresql://"

        def run(self, run_id: str, *, create: bool) -> Run:
            return run

        def runs(self) -> list[str]:
            return [run.id]

    looked = Backlogs(list).look()
    found = sample(Known(), [Stored()], looked)  # type: ignore[arg-type, list-item]
    assert found.held_back == {"a long report (pid 7)": 90.0}


def waiting_for_a_row(connection: psycopg.Connection[tuple[int]], run: Run) -> bool:
    """Does a statement of this run wait for somebody else's transaction to end?"""
    found = connection.execute(
        "SELECT count(*) FROM pg_locks AS waiting "
        "JOIN pg_locks AS held USING (pid) JOIN pg_class AS c ON c.oid = held.relation "
        "WHERE NOT waiting.granted AND waiting.locktype = 'transactionid' AND c.relnamespace = to_regnamespace(%s)",
        (f'"{schema_name(run.id)}"',),
    ).fetchone()
    return found is not None and found[0] > 0


def test_a_reset_waits_for_a_consumer_that_polls_in_its_transaction(
    run: Run, postgres_url: str, eventually: Callable[..., None]
) -> None:
    """The reset waits for the ack, the poll for the reset: the database cannot know that this is a circle."""
    with (
        run.writer("t") as writer,
        run.reader("t", group="g") as reader,
        psycopg.connect(postgres_url, autocommit=True) as watcher,
    ):
        writer.send_many(BatchInfo(tick_start=n) for n in range(4))
        held, polled, ahead = reader.poll_many(2, 0), [], []
        resetting = threading.Thread(target=lambda: ahead.append(run.groups.reset("t", "g", "earliest")))
        polling = threading.Thread(target=lambda: polled.append(reader.poll_many(2, 0)))
        with run.transaction() as slow:
            assert reader.ack_many(held, connection=slow) == [True, True]
            resetting.start()
            eventually(lambda: waiting_for_a_row(watcher, run))
            polling.start()
            polling.join(20)
            assert not polling.is_alive()
        resetting.join(20)
        assert ahead == [4]
        assert ticks(reader) == [0, 1, 2, 3]


def test_retention_removes_nothing_that_a_reset_gives_the_group_again(
    run: Run, postgres_url: str, eventually: Callable[..., None]
) -> None:
    """Retention is held after it has chosen what to remove: somebody else has the rows of the claims."""
    with (
        run.writer("t") as writer,
        run.reader("t", group="g") as reader,
        psycopg.connect(postgres_url) as blocker,
        psycopg.connect(postgres_url, autocommit=True) as watcher,
    ):
        writer.send_many(BatchInfo(tick_start=n) for n in range(3))
        assert ticks(reader) == [0, 1, 2]
        blocker.execute(f'SELECT 1 FROM "{schema_name(run.id)}".topic_consumer_group FOR UPDATE')
        removed: list[int] = []
        removing = threading.Thread(target=lambda: removed.append(run.remove_outdated("t", max_age=0)))
        removing.start()
        eventually(lambda: waiting_for_a_row(watcher, run))
        run.groups.reset("t", "g", "earliest")
        blocker.rollback()
        removing.join(20)
        assert removed == [0]
        assert ticks(reader) == [0, 1, 2]


def test_retention_removes_nothing_that_a_new_group_has_claimed(
    run: Run, postgres_url: str, eventually: Callable[..., None]
) -> None:
    with (
        run.writer("t") as writer,
        run.reader("t", group="g") as reader,
        psycopg.connect(postgres_url) as blocker,
        psycopg.connect(postgres_url, autocommit=True) as watcher,
    ):
        writer.send_many(BatchInfo(tick_start=n) for n in range(3))
        assert ticks(reader) == [0, 1, 2]
        blocker.execute(f'SELECT 1 FROM "{schema_name(run.id)}".topic_consumer_group FOR UPDATE')
        removed: list[int] = []
        removing = threading.Thread(target=lambda: removed.append(run.remove_outdated("t", max_age=0)))
        removing.start()
        eventually(lambda: waiting_for_a_row(watcher, run))
        with run.reader("t", group="new") as another:
            held = another.poll_many(3, 0)
            blocker.rollback()
            removing.join(20)
            assert removed == [3 - len(held)]
            assert all(another.ack_many(held))


STATE = """
SELECT current_setting('statement_timeout'), current_setting('default_transaction_read_only'),
       current_setting('default_transaction_isolation'), current_setting('synchronous_commit'),
       current_setting('search_path'), current_user, session_user,
       (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()),
       (SELECT count(*) FROM pg_listening_channels()), pg_backend_pid()
"""
CHANGES = [
    "SET statement_timeout = '50ms'",
    "SELECT set_config('default_transaction_read_only', 'on', false)",
    "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    "SET synchronous_commit = off",
    "SET search_path = pg_catalog",
    "SET ROLE pg_monitor",
    "SET SESSION AUTHORIZATION pg_monitor",
    "SELECT pg_advisory_lock(7)",
    "LISTEN something",
]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("fails", [False, True])
def test_what_a_transaction_changes_in_its_session_is_undone_before_the_next_has_it(
    postgres_url: str, change: str, fails: bool
) -> None:
    with Database(postgres_url, max_pool_size=1) as database:
        run = database.run(f"20251014-143025-{uuid4().hex[:8]}")
        with run.transaction() as transaction:
            before = transaction.execute(STATE, {})
        with suppress(ZeroDivisionError), run.transaction() as transaction:
            transaction.execute_script(change)
            if fails:
                raise ZeroDivisionError
        with run.transaction() as transaction:
            assert transaction.execute(STATE, {}) == before


def test_a_constraint_that_is_checked_at_the_commit_finds_the_tables_of_its_run(run: Run) -> None:
    with run.transaction() as transaction:
        transaction.execute_script("""
            CREATE TABLE orders (id integer);
            CREATE FUNCTION check_orders() RETURNS trigger LANGUAGE plpgsql AS
                'BEGIN IF (SELECT count(*) FROM orders) > 1 THEN RAISE ''too many''; END IF; RETURN NULL; END';
            CREATE CONSTRAINT TRIGGER few AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED
                FOR EACH ROW EXECUTE FUNCTION check_orders()
        """)
    with run.transaction() as transaction:
        transaction.execute_script("INSERT INTO orders VALUES (1)")


def test_a_connection_that_has_become_read_only_is_replaced(postgres_url: str) -> None:
    with Database(postgres_url, max_pool_size=1) as database:
        run = database.run(f"20251014-143025-{uuid4().hex[:8]}")
        with run.transaction() as transaction:
            transaction._connection.execute("SET default_transaction_read_only = on")  # type: ignore[attr-defined]
        with run.writer("t") as writer:
            with pytest.raises(DatabaseUnavailable), run.transaction() as transaction:
                writer.send(BatchInfo(tick_start=1), connection=transaction)
            writer.send(BatchInfo(tick_start=2))
        assert len(run.browse("t")) == 1


def test_a_consumer_that_stands_still_as_it_is_sent_large_messages_does_not_hold_its_group(
    run: Run, postgres_url: str, eventually: Callable[..., None]
) -> None:
    with run.writer("t") as writer:
        writer.send_many(BatchInfo(storage_key="k" * 1_000_000, tick_start=number) for number in range(20))
    with closing(psycopg.connect(postgres_url, autocommit=True)) as still, run.reader("t", group="g") as reader:
        still.execute(f'SET search_path TO "{schema_name(run.id)}"')
        still.pgconn.send_query(CLAIM.format(lease_ms=300_000, limit=10).encode())  # and never reads the answer
        eventually(lambda: len(run.claims.list()) == 10, 20)
        messages = reader.poll_many(60, 30)
        assert [message.payload.tick_start for message in messages] == list(range(10, 20))  # type: ignore[attr-defined]
        assert {len(message.payload.storage_key) for message in messages} == {1_000_000}  # type: ignore[attr-defined]


def test_a_poll_ends_though_somebody_holds_its_group(run: Run, postgres_url: str) -> None:
    with run.writer("t") as writer, run.reader("t", group="g") as reader:
        writer.send(BatchInfo(tick_start=1))
        with psycopg.connect(postgres_url) as holder:
            holder.execute(f'SET search_path TO "{schema_name(run.id)}"')
            holder.execute("SELECT 1 FROM topic_groups FOR UPDATE")
            assert reader.poll(0) is None
            assert not reader.monitor.healthy
        assert ticks(reader) == [1]
        assert reader.monitor.healthy


@pytest.mark.warns("DEAD_LETTER")
def test_a_replay_beside_a_reset_hands_no_message_to_two_consumers(
    run: Run, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., None]
) -> None:
    with run.writer("t") as writer, run.reader("t", group="g", max_delivery_attempts=1) as reader:
        writer.send_many(BatchInfo(tick_start=number) for number in (1, 2))
        first, second = reader.poll_many(2, 5)
        reader.fail(first, "x")
        reader.ack(second)
    reopened, go_on, notify = threading.Event(), threading.Event(), PostgresTransaction.notify

    def late(self: PostgresTransaction, channel: str) -> None:
        if threading.current_thread() is replay:
            reopened.set()
            assert go_on.wait(60)
        notify(self, channel)

    monkeypatch.setattr(PostgresTransaction, "notify", late)
    replay = threading.Thread(target=run.dead_letters.replay)
    reset = threading.Thread(target=run.groups.reset, args=("t", "g", "earliest"))
    replay.start()
    assert reopened.wait(60)
    reset.start()
    with run.reading() as view:
        waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        eventually(lambda: not reset.is_alive() or view.execute(waiting, {}) != [(0,)])
    go_on.set()
    replay.join()
    reset.join()
    with run.reader("t", group="g") as one, run.reader("t", group="g") as other:
        messages = [one.poll(0), other.poll(0)]
        assert [message and message.payload.tick_start for message in messages] == [1, 2]  # type: ignore[attr-defined]
        assert messages[0] is not None
        assert one.ack(messages[0])


def test_a_slow_look_is_followed_by_a_rest_of_a_second_at_most(run: Run) -> None:
    clock = """CREATE OR REPLACE FUNCTION now_ms() RETURNS bigint LANGUAGE plpgsql STABLE AS $$
        BEGIN PERFORM pg_sleep({}); RETURN (extract(epoch FROM now_at()) * 1000)::bigint; END $$"""
    with run.writer("t") as writer, run.reader("t", group="g") as holder, run.reader("t", group="g") as reader:
        writer.send(BatchInfo(tick_start=1))
        assert holder.poll(0) is not None
        with run.transaction() as transaction:
            transaction.execute_script(clock.format(0.2))
        assert reader.poll(0) is None
        with run.transaction() as transaction:
            transaction.execute_script(clock.format(0))
        wait_ms = reader._store.claim(reader._consumer, 1).wait_ms
        assert wait_ms is not None
        assert 0 < wait_ms <= 1000


@pytest.fixture
def narrow(postgres_url: str, run: Run) -> Iterator[Run]:
    """The run through a pool with one connection."""
    with Database(postgres_url, max_pool_size=1) as database:
        yield database.run(run.id)


@pytest.mark.parametrize(
    "script",
    [
        "CREATE TEMP TABLE scratch (x int)",
        "CREATE TEMP TABLE scratch AS SELECT 1; DECLARE c CURSOR FOR SELECT * FROM scratch",
        "DECLARE c CURSOR WITH HOLD FOR SELECT 1",
        "PREPARE plan AS SELECT 1",
    ],
)
def test_what_a_transaction_leaves_in_its_session_is_gone_after_it(narrow: Run, script: str) -> None:
    for _ in range(3):
        with narrow.transaction() as transaction:
            transaction.execute_script(script)
    with pytest.raises(ValueError, match="undone"), narrow.transaction() as transaction:
        transaction.execute_script(script)
        raise ValueError("undone")
    with narrow.transaction() as transaction:
        transaction.execute_script(script)


def test_a_temporary_table_with_the_name_of_ours_takes_no_messages(narrow: Run) -> None:
    with narrow.writer("t") as writer:
        writer.send(BatchInfo(tick_start=0))
        with narrow.transaction() as transaction:
            transaction.execute_script("CREATE TEMP TABLE topic_messages (LIKE topic_messages INCLUDING ALL)")
            writer.send(BatchInfo(tick_start=1), connection=transaction)
        writer.send(BatchInfo(tick_start=2))
        assert len(narrow.browse("t")) == 3


AUDIT = """
CREATE TABLE audited (n int);
CREATE TABLE audit (n int, who text);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO audit SELECT NEW.n, current_setting('app.who') || who.name FROM who;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER later AFTER INSERT ON audited DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION note()
"""
DEFERRED = """
SET app.who = 'a';
CREATE TEMP TABLE who AS SELECT 'b'::text AS name;
CREATE TEMP TABLE parent (id int PRIMARY KEY);
CREATE TEMP TABLE child (id int REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
INSERT INTO child VALUES (1);
INSERT INTO parent VALUES (1);
INSERT INTO audited VALUES (1)
"""


def test_deferred_triggers_find_what_their_transaction_has_left_in_the_session(narrow: Run) -> None:
    with narrow.transaction() as transaction:
        transaction.execute_script(AUDIT)
    for _ in range(2):
        with narrow.transaction() as transaction:
            transaction.execute_script(DEFERRED)
    with narrow.reading() as transaction:
        assert transaction.execute("SELECT n, who FROM audit", {}) == [(1, "ab"), (1, "ab")]


def test_a_deferred_constraint_that_is_violated_stores_nothing(narrow: Run) -> None:
    with narrow.transaction() as transaction:
        transaction.execute_script("CREATE TABLE once (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    with pytest.raises(UniqueViolation), narrow.transaction() as transaction:
        transaction.execute_script("INSERT INTO once VALUES (1); INSERT INTO once VALUES (1)")
    with narrow.reading() as transaction:
        assert transaction.execute("SELECT n FROM once", {}) == []


def test_a_transaction_without_foreign_statements_cleans_nothing_up(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("cleaned up")

    with run.writer("t") as writer:
        monkeypatch.setattr(Connection, "clean_and_commit", refuse)
        with run.transaction() as transaction:
            writer.send(BatchInfo(tick_start=0), connection=transaction)
        assert len(run.browse("t")) == 1


def test_a_pool_whose_connections_are_all_in_use_is_named_as_such(narrow: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ticklake.database.postgres.backend.POOL_SECONDS", 0.1)
    with (
        narrow.transaction(),
        pytest.raises(PoolExhausted, match=r"all 1 were in use for 0.1 seconds.*max_pool_size"),
        narrow.reading(),
    ):
        pass
