"""PostgreSQL: the tables are upgraded while a process of the older version is in the middle of a claim."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from uuid import uuid4

import psycopg
import pytest

from ticklake import BatchInfo, Database
from ticklake.database import Schema, open_backend, versions
from ticklake.database.postgres import lock_waits as blocked
from ticklake.database.statements import migrations
from ticklake.errors import TablesLocked
from ticklake.topics import TopicReader
from ticklake.topics.envelope import wrap

pytestmark = pytest.mark.warns("Waiting to create or upgrade tables")  # on a busy machine
TOPICS = "ticklake.topics"
JOIN = """INSERT INTO topic_group_positions (topic_name, consumer_group, frontier, seen)
    VALUES ('t', %s, 0, pg_current_snapshot())"""
JOIN_SINCE_5 = """WITH made AS (
        INSERT INTO topic_groups (topic_name, consumer_group) VALUES ('t', %s) RETURNING topic_name, consumer_group)
    INSERT INTO topic_positions (topic_name, consumer_group, frontier, seen)
    SELECT topic_name, consumer_group, 0, pg_current_snapshot() FROM made"""
SEND = "INSERT INTO topic_messages (topic_name, message_id, timestamp, envelope) VALUES ('t', %s, %s, %s)"
CLAIM = "SELECT r_message_id FROM topic_claim('t', 'g', 'old', 300000, 5, 5)"
WAITING = """SELECT count(*) FROM pg_locks AS l JOIN pg_class AS c ON c.oid = l.relation
    WHERE NOT l.granted AND c.relnamespace = to_regnamespace(%s)"""


class Old:
    """A run with tables of an older version, and 20 messages, and a process that is at work on them."""

    def __init__(self, url: str, schema: Schema, process: psycopg.Connection, version: int) -> None:
        self.url, self.schema, self.process = url, schema, process
        self._join = JOIN if version < 5 else JOIN_SINCE_5

    def join(self, group: str) -> None:
        self.process.execute(self._join.encode(), (group,))

    def upgraded_meanwhile(self, eventually: Callable[..., None]) -> None:
        """Begins the upgrade, and ends the old process's transaction when the upgrade waits for it."""
        name = f'"{self.schema.name}"'
        upgrading = threading.Thread(target=versions.upgrade, args=(self.schema,))
        with psycopg.connect(self.url, autocommit=True) as watcher:
            upgrading.start()
            eventually(lambda: watcher.execute(WAITING, (name,)).fetchone() != (0,))
            self.process.commit()
            upgrading.join(30)
        assert not upgrading.is_alive()


TABLES_CHANGED = 10
"""The last version that changed tables. Later ones replace functions, and wait for nobody."""


@pytest.fixture(params=range(1, TABLES_CHANGED))
def old(postgres_url: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Old]:
    backend = open_backend(postgres_url)
    schema = backend.schema(f"20251014-143025-{uuid4().hex[:8]}")
    with monkeypatch.context() as patched:
        patched.setattr(versions, "migrations", lambda *of: migrations(*of)[: request.param])
        creation = versions.creation_script(schema, [TOPICS])
    with psycopg.connect(postgres_url) as process:
        process.execute(creation.encode())
        process.execute(f'SET search_path TO "{schema.name}"')
        for number in range(20):
            process.execute(SEND, wrap(BatchInfo(tick_start=number), now_ms=1))
        found = Old(postgres_url, schema, process, request.param)
        found.join("g")
        process.commit()
        yield found
    backend.close()


def numbers(reader: TopicReader) -> list[int]:
    messages = reader.poll_many(100, 0)
    assert all(reader.ack_many(messages))
    return [message.payload.tick_start for message in messages]  # type: ignore[attr-defined]


def test_a_group_goes_on_after_the_claim_that_was_under_way_when_its_tables_were_upgraded(
    old: Old, eventually: Callable[..., None]
) -> None:
    assert len(old.process.execute(CLAIM).fetchall()) == 5
    old.upgraded_meanwhile(eventually)
    with Database(old.url) as database:
        run = database.run(old.schema.run_id)
        with run.reader("t", group="g") as reader:
            assert numbers(reader) == list(range(5, 20)), "the first five are in the hands of the older process"
            run.groups.reset("t", "g", "earliest")
            assert numbers(reader) == list(range(20))


def test_a_group_that_joined_while_its_tables_were_upgraded_is_kept(old: Old, eventually: Callable[..., None]) -> None:
    old.join("joining")
    old.upgraded_meanwhile(eventually)
    with Database(old.url) as database:
        assert [one.group for one in database.run(old.schema.run_id).groups.list()] == ["g", "joining"]


def test_an_upgrade_says_whom_it_waits_for_and_gives_up_in_the_end(
    old: Old, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(blocked, "POLL_SECONDS", 0.1)
    monkeypatch.setattr(blocked, "LOCK_SECONDS", 2.0)
    pid = old.process.info.backend_pid
    old.process.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 7))", (old.schema.name,))
    with pytest.raises(TablesLocked, match=rf"postgres \(pid {pid}\) has locked them .* pg_terminate_backend"):
        versions.upgrade(old.schema)
    said = [line for line in caplog.messages if "Waiting to create or upgrade" in line]
    assert len(said) == 1 and f"pid {pid}" in said[0] and old.schema.run_id in said[0]
    old.process.rollback()
    assert versions.upgrade(old.schema)


def test_a_group_goes_on_when_it_has_claims_that_its_position_does_not_know_of(postgres_url: str) -> None:
    with Database(postgres_url) as database:
        run = database.run(f"20251014-143025-{uuid4().hex[:8]}")
        with run.writer("t") as writer, run.reader("t", group="g") as reader:
            writer.send_many(BatchInfo(tick_start=number) for number in range(6))
            assert numbers(reader) == list(range(6))
            with run.transaction() as transaction:
                transaction.execute_script("UPDATE topic_positions SET frontier = 2, reached = 2")
            assert numbers(reader) == [2, 3, 4, 5]
