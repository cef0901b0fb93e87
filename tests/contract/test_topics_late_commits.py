"""PostgreSQL gives ids in one order and commits in another: every group is given every message all the same."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from ticklake import BatchInfo, Database
from ticklake.database.names import schema_name
from ticklake.topics import Run, TopicReader
from ticklake.topics.envelope import client_clock_ms, wrap

CHILD = Path(__file__).with_name("publisher_child.py")
Publisher = psycopg.Connection[tuple[int]]


@pytest.fixture
def run(postgres_url: str) -> Iterator[Run]:
    with Database(postgres_url) as database:
        yield database.run(f"20251014-143025-{uuid4().hex[:8]}")


@pytest.fixture
def publisher(run: Run, postgres_url: str) -> Iterator[Callable[[], Publisher]]:
    """Connections of other programs, in the run's schema, each with a transaction of its own."""
    run.topics()
    with ExitStack() as connections:

        def connect() -> Publisher:
            connection = connections.enter_context(psycopg.connect(postgres_url))
            connection.execute("SELECT set_config('search_path', %s, false)", (f'"{schema_name(run.id)}"',))
            connection.commit()
            return connection

        yield connect


def insert(connection: Publisher, number: int, topic: str = "t") -> None:
    """With plain SQL, so that one transaction can take an id between two ids of another."""
    envelope = wrap(BatchInfo(tick_start=number), client_clock_ms())
    connection.execute(
        "INSERT INTO topic_messages (topic_name, message_id, timestamp, envelope) VALUES (%s, %s, %s, %s)",
        (topic, *envelope),
    )


def ticks(reader: TopicReader, limit: int = 100) -> list[int]:
    messages = reader.poll_many(limit, 0)
    assert all(reader.ack_many(messages))
    return [m.payload.tick_start for m in messages]  # type: ignore[attr-defined]


@contextmanager
def interleaved(connect: Callable[[], Publisher]) -> Iterator[Publisher]:
    """Messages 1 and 3 are committed; number 2, whose transaction is younger and whose id lies between, is not yet."""
    older, younger = connect(), connect()
    insert(older, 1)
    insert(younger, 2)
    insert(older, 3)
    older.commit()
    yield younger


def test_an_id_taken_in_the_middle_of_an_older_insert_is_delivered(
    run: Run, publisher: Callable[[], Publisher]
) -> None:
    with run.reader("t", group="g") as reader, interleaved(publisher) as younger:
        assert ticks(reader) == [1, 3]
        younger.commit()
        assert run.groups.list()[0].lag == 1
        assert ticks(reader) == [2]
        assert run.groups.list()[0].lag == 0


def test_retention_keeps_an_id_taken_in_the_middle_of_an_older_insert(
    run: Run, publisher: Callable[[], Publisher]
) -> None:
    with run.reader("t", group="g") as reader, interleaved(publisher) as younger:
        assert ticks(reader) == [1, 3]
        younger.commit()
        assert run.remove_outdated("t", max_count=0) == 2
        assert ticks(reader) == [2]
        assert run.remove_outdated("t", max_count=0) == 1


@pytest.mark.parametrize("to", ["end", "message"])
def test_a_group_that_is_set_past_an_open_transaction_gets_its_messages(
    run: Run, publisher: Callable[[], Publisher], to: str
) -> None:
    with run.reader("t", group="g") as reader, interleaved(publisher) as younger:
        where = "end" if to == "end" else run.browse("t")[1].message_id
        run.groups.reset("t", "g", where)
        younger.commit()
        assert ticks(reader) == ([2] if to == "end" else [2, 3])


def test_a_group_that_joins_at_the_end_gets_what_commits_afterwards(
    run: Run, publisher: Callable[[], Publisher]
) -> None:
    with interleaved(publisher) as younger, run.reader("t", group="g", start="end") as reader:
        younger.commit()
        assert ticks(reader) == [2]


def test_a_group_that_got_a_late_message_can_be_set_back(run: Run, publisher: Callable[[], Publisher]) -> None:
    with interleaved(publisher) as younger, run.reader("t", group="g", start="end") as reader:
        younger.commit()
        assert ticks(reader) == [2]
        run.groups.reset("t", "g", "earliest")
        assert ticks(reader) == [1, 2, 3]


def test_a_group_at_the_end_that_got_an_old_transactions_message_can_be_set_back(
    run: Run, publisher: Callable[[], Publisher]
) -> None:
    """As above, with a transaction that the group's snapshot lists."""
    older, younger = publisher(), publisher()
    insert(older, 1)
    insert(younger, 2)
    younger.commit()
    with run.reader("t", group="g", start="end") as reader:
        older.commit()
        assert ticks(reader) == [1]
        run.groups.reset("t", "g", "earliest")
        assert ticks(reader) == [1, 2]
        run.groups.reset("t", "g", "end")
        insert(older, 3)
        older.commit()
        assert ticks(reader) == [3]


def test_parts_of_a_transaction_are_late_as_one(run: Run, publisher: Callable[[], Publisher]) -> None:
    """Each savepoint has a number of its own, higher than its transaction's; one that is undone delivers nothing."""
    with run.reader("t", group="g") as reader, interleaved(publisher) as younger:
        for number in range(4, 8):
            with suppress(psycopg.errors.DivisionByZero), younger.transaction():
                insert(younger, number)
                younger.execute("SELECT 1 / %s::integer", (number % 2,))
        assert ticks(reader) == [1, 3]
        younger.commit()
        assert ticks(reader) == [2, 5, 7]


def test_a_late_batch_is_given_in_small_polls_and_before_what_came_later(
    run: Run, publisher: Callable[[], Publisher]
) -> None:
    with run.reader("t", group="g") as reader, interleaved(publisher) as younger:
        for number in range(4, 8):
            insert(younger, number)
        with run.writer("t") as writer:
            writer.send(BatchInfo(tick_start=8))
            assert ticks(reader) == [1, 3, 8]
            younger.commit()
            writer.send(BatchInfo(tick_start=9))
        assert run.groups.list()[0].lag == 6
        assert [ticks(reader, 2), run.groups.list()[0].lag] == [[2, 4], 4]
        states = {m.opened().payload.tick_start: m.state for m in run.browse("t", group="g")}  # type: ignore[union-attr]
        assert [states[n] for n in (2, 4, 5, 6, 7, 9)] == ["acknowledged"] * 2 + ["new"] * 4
        assert run.remove_outdated("t", max_count=0, dry_run=True) == 5
        messages = reader.poll_many(2, 0)
        assert [(m.attempts, m.claim_version) for m in messages] == [(1, 1), (1, 1)]
        assert all(reader.release(messages))
        assert [ticks(reader, 2), ticks(reader, 2), ticks(reader, 2)] == [[5, 6], [7, 9], []]


@pytest.fixture(scope="module")
def with_prepared_transactions(own_postgres: Any) -> str:
    own_postgres.psql("ALTER SYSTEM SET max_prepared_transactions = 5;")
    own_postgres.stop()
    own_postgres.start()
    return str(own_postgres.get_uri())


def test_a_prepared_transaction_that_commits_later_is_delivered(with_prepared_transactions: str) -> None:
    """Nobody holds its connection any more. PostgreSQL prepares none that has used NOTIFY: this one has no trigger."""
    with ExitStack() as stack:
        run = stack.enter_context(Database(with_prepared_transactions)).run("prepared")
        reader = stack.enter_context(run.reader("t", group="g"))
        older, younger = (stack.enter_context(psycopg.connect(with_prepared_transactions)) for _ in range(2))
        for connection in (older, younger):
            connection.execute("SELECT set_config('search_path', %s, false)", (f'"{schema_name(run.id)}"',))
            connection.commit()
        younger.execute("SET session_replication_role = replica")
        younger.commit()
        younger.tpc_begin("late")
        insert(older, 1)
        insert(younger, 2)
        insert(older, 3)
        younger.tpc_prepare()
        older.commit()
        assert ticks(reader) == [1, 3]
        assert ticks(reader) == []
        younger.tpc_commit()
        assert ticks(reader) == [2]
        assert run.groups.list()[0].lag == 0


READ = """SELECT coalesce(sum(seq_tup_read + idx_tup_fetch), 0)::bigint FROM pg_stat_xact_user_tables
    WHERE schemaname = current_schema() AND relname IN ('topic_messages', 'topic_consumer_group')"""


def rows_read(run: Run, limit: int = 10) -> tuple[list[tuple[Any, ...]], int]:
    """What a claim gives, and how many rows it has read for that."""
    with run.transaction(durable=False) as transaction:
        ((before,),) = transaction.execute(READ, {})
        who = {"topic": "t", "group": "g", "consumer": "me"}
        rows = transaction.sql("ticklake.topics").claim(
            **who, lease_ms=60_000, max_attempts=5, limit=limit, alone=False
        )
        ((after,),) = transaction.execute(READ, {})
    return rows, after - before


def test_a_claim_reads_nothing_of_other_topics_and_each_message_of_a_backlog_once(run: Run) -> None:
    with run.writer("t") as writer, run.writer("busy") as busy, run.reader("t", group="g") as reader:
        writer.send(BatchInfo(tick_start=1))
        assert ticks(reader) == [1]
        busy.send_many(BatchInfo(tick_start=n) for n in range(2000))
        rows, read = rows_read(run)
        assert (rows, read < 20) == ([], True)
        writer.send_many(BatchInfo(tick_start=n) for n in range(2000))
        assert len(rows_read(run)[0]) == 10
        for _ in range(20):  # kept plans, too
            rows, read = rows_read(run)
            assert (len(rows), read < 60) == (10, True)


def test_a_late_batch_is_looked_through_once(run: Run, publisher: Callable[[], Publisher]) -> None:
    with run.reader("t", group="g") as reader, interleaved(publisher) as younger:
        for number in range(4, 1000):
            insert(younger, number)
        with run.writer("t") as writer:
            writer.send(BatchInfo(tick_start=1000))
        assert len(ticks(reader)) == 3
        younger.commit()
        assert len(rows_read(run)[0]) == 10
        for _ in range(20):
            rows, read = rows_read(run)
            assert (len(rows), read < 100) == (10, True)


class Reading(threading.Thread):
    """A reader that takes a few at a time until it is told that nothing more comes, and nothing does."""

    def __init__(self, run: Run, group: str, limit: int) -> None:
        super().__init__()
        self._reader = run.reader("t", group=group)
        self._limit = limit
        self.all_sent = threading.Event()
        self.acked: list[str] = []

    def run(self) -> None:
        with self._reader as reader:
            while True:
                last = self.all_sent.is_set()
                messages = reader.poll_many(self._limit, 0.05)
                assert all(reader.ack_many(messages))
                self.acked += [message.id for message in messages]
                if last and not messages:
                    return


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("rounds", "size"), [(12, 300), pytest.param(150, 1000, marks=pytest.mark.long)], ids=["short", "long"]
)
def test_each_group_is_given_every_message_of_concurrent_publishers(
    run: Run, postgres_url: str, tmp_path: Path, rounds: int, size: int
) -> None:
    """Real processes that publish batches in every way there is; sent and given are compared to the last message."""
    run.topics()
    outputs = [tmp_path / f"publisher-{seed}.txt" for seed in range(3)]
    publishers = []
    for seed, path in enumerate(outputs):
        with path.open("wb") as output:
            command = [sys.executable, str(CHILD), postgres_url, run.id, str(seed), str(rounds), str(size)]
            publishers.append(subprocess.Popen(command, stdout=output))
    readers = {"one": [Reading(run, "one", 100)], "two": [Reading(run, "two", limit) for limit in (7, 1000)]}
    together = [reader for group in readers.values() for reader in group]
    for reader in together:
        reader.start()
    assert [publisher.wait() for publisher in publishers] == [0, 0, 0]
    for reader in together:
        reader.all_sent.set()
    for reader in together:
        reader.join()
    sent = [line for path in outputs for line in path.read_text().splitlines()]
    assert len(set(sent)) == len(sent) > rounds * size
    with run.reading() as view:
        stored = {row[0] for row in view.execute("SELECT message_id FROM topic_messages", {})}
    assert stored == set(sent)
    for group in readers.values():
        given = Counter(id_ for reader in group for id_ in reader.acked)
        assert set(sent) - set(given) == set(), "never given"
        assert [id_ for id_, times in given.items() if times > 1] == []
    assert [status.lag for status in run.groups.list()] == [0, 0]
    assert run.remove_outdated("t", max_count=0) == len(sent)
