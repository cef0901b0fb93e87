"""PostgreSQL's statements need no statistics: they read a few pages of large tables that were never analyzed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from ticklake import Database
from ticklake.database.names import schema_name
from ticklake.database.statements import statements

TABLES = (
    *("topic_messages", "topic_consumer_group", "topic_dead_letters", "topic_positions", "idempotency_tracking"),
    *("processed_messages", "outbox_messages", "coordinator_batches", "coordinator_gaps"),
)
# The group has claimed every message and acknowledged none but the last. All but 50 outbox messages were sent.
FILL = """
INSERT INTO topic_groups (topic_name, consumer_group) VALUES ('t', 'g');
INSERT INTO topic_messages (topic_name, message_id, timestamp, envelope)
SELECT 't', 'm' || n, 0, '\\x01' FROM generate_series(1, {count}) AS n;
INSERT INTO topic_positions (topic_name, consumer_group, frontier, seen, reached, longest_lease)
SELECT 't', 'g', max(id), pg_current_snapshot(), max(id), 1000000 FROM topic_messages;
INSERT INTO topic_consumer_group
    (topic_name, consumer_group, message_id, id, claimed_by, claimed_at, since, lease_until)
SELECT topic_name, 'g', message_id, id, 'me', now_at(), now_ms(), now_ms() + 1000000 FROM topic_messages ORDER BY id;
INSERT INTO topic_dead_letters
    (topic_name, consumer_group, message_id, id, envelope, attempts, error, traceback, dead_at)
SELECT topic_name, 'other', message_id, id, envelope, 5, '', '', now_at()
FROM topic_messages WHERE id > 100 ORDER BY id;
INSERT INTO idempotency_tracking SELECT 'I', message_id, now_at() FROM topic_messages;
INSERT INTO processed_messages (event_id, consumer_group, topic) SELECT gen_random_uuid(), 'g', 't' FROM topic_messages;
INSERT INTO outbox_messages (topic_name, event_id, message_id, timestamp, envelope, sent_at)
SELECT 't', gen_random_uuid(), 'r' || id, 0, '\\x01', CASE WHEN id <= {count} - 50 THEN now_at() END
FROM topic_messages ORDER BY id;
INSERT INTO coordinator_batches (indexer_class, table_id, batch_filename, tick_start, tick_end, indexer_instance_id,
    claim_timestamp, status, lease_until)
SELECT 'I', 'table', 'b' || n, 10 * n, 10 * n + 9, 'me', now_at(),
       CASE WHEN n <= 100 THEN 'claimed' ELSE 'completed' END, now_ms() + 1000000
FROM generate_series(1, {count}) AS n;
INSERT INTO coordinator_gaps (indexer_class, table_id, gap_start_tick, gap_end_tick, first_detected, status)
SELECT 'I', 'table', 100 * n, 100 * n + 9, now_at(), CASE WHEN n > 10 THEN 'permanent' ELSE 'pending' END
FROM generate_series(1, {count}) AS n;
"""
POSITION = """INSERT INTO topic_positions (topic_name, consumer_group, frontier, seen)
    VALUES ('t', 'g', 0, pg_current_snapshot())"""
CLAIM = {"topic": "t", "group": "g", "consumer": "me"}
SOME = {"message_ids": json.dumps(["m11", "m12"]), "version": 1}
BATCH = {"indexer_class": "I", "table_id": "table", "instance": "me", "lease_ms": 1000}
BATCHES = {"claims": json.dumps([["b11", 1], ["b12", 1]]), "filenames": json.dumps(["b11", "x"]), "filename": "b11"}
NEW = {"message_ids": ["n1", "n2"], "timestamps": [1, 2], "envelopes": [b"", b""]}
EVENTS = {"event_ids": json.dumps([str(uuid4()), str(uuid4())])}


class Hot(NamedTuple):
    """A statement, its values, and what is changed before. `rare`: executed too rarely to keep its plan."""

    package: str
    name: str
    values: dict[str, Any]
    before: str = ""
    rare: bool = False
    pages: int = 60


FREED = "UPDATE topic_consumer_group SET lease_until = 1 WHERE message_id = ANY ('{m11,m12}')"
DELIVERED = "DELETE FROM topic_consumer_group WHERE id > 900; UPDATE topic_positions SET frontier = 900"
SPENT = f"{FREED}; UPDATE topic_consumer_group SET attempts = 5 WHERE message_id = 'm11'"
SWEEP = "UPDATE topic_positions SET looked_at = 0, swept_at = 0"
POLL = CLAIM | {"lease_ms": 1000, "max_attempts": 5, "limit": 10, "alone": True}

TOPICS = [
    Hot("topics", "publish", {"topic": "t"} | NEW),
    Hot("topics", "publish", {"topic": "t"} | NEW | {"message_ids": ["m1", "n1"]}),
    Hot("topics", "look", CLAIM),
    Hot("topics", "claim", POLL),
    Hot("topics", "claim", POLL, DELIVERED, pages=200),
    Hot("topics", "claim", POLL, f"{FREED}; {SWEEP}", pages=200),
    Hot("topics", "claim", POLL, f"{SPENT}; {SWEEP}", pages=200),
    Hot("topics", "envelopes", CLAIM | SOME),
    Hot("topics", "extend", CLAIM | SOME | {"lease_ms": 1000}),
    Hot("topics", "release", CLAIM | SOME | {"delay_ms": 0, "forgiven": 1}),
    Hot("topics", "release", CLAIM | SOME | {"delay_ms": 100, "forgiven": 0}),
    Hot("topics", "ack", CLAIM | SOME),
    Hot("topics", "acknowledged", CLAIM | SOME),
    Hot("topics", "force_release", CLAIM | SOME | {"message_id": "m11", "forgiven": 1}),
    Hot("topics", "bury", CLAIM | {"message_id": "m11", "claim_version": 1, "error": "e", "traceback": ""}),
    Hot("topics", "reopen", {"letters": json.dumps([["t", "g", "m11"]])}, rare=True),
    Hot("topics", "remove_claims", CLAIM | SOME),
    Hot("topics", "remove_messages", CLAIM | SOME),
    Hot("topics", "mark_processed", {"indexer_class": "I", "batch_ids": json.dumps(["m11", "new"])}),
    Hot("topics", "processed", {"indexer_class": "I", "batch_id": "m11"}),
    Hot("topics", "lock_position", CLAIM),
    Hot("topics", "position_of_end", CLAIM),
    Hot("topics", "position_of_message", CLAIM | {"message_id": "m11"}),
    Hot("topics", "topics", {}),
    Hot("topics", "topic_status", {"topic": "t", "limit": 10}, pages=200),
    Hot("topics", "browse", {"topic": "t", "group": "g", "after": 10, "limit": 10}),
    Hot("topics", "newest", {"topic": "t", "limit": 10}),
    Hot("topics", "baton", {"topic": "t", "message_id": "m11"}),
    Hot("topics", "foreign_numbers", {}),
]
CONSUMER = [
    Hot("consumer", "find_processed", {"group": "g"} | EVENTS),
    Hot("consumer", "mark", {"group": "g", "topic": "t", "wait_ms": 100} | EVENTS),
    Hot("consumer", "unmark", {"group": "g"} | EVENTS),
    Hot("consumer", "horizon", {"group": "g"}),
    Hot("consumer", "add_to_outbox", {"topic": "t", "rows": json.dumps([[str(uuid4()), "n", 1, "00"]])}),
    Hot("consumer", "outbox_head", {"topic": "t"}),
    Hot("consumer", "unsent", {"topic": "t", "limit": 2, "still_ms": 1000}),
    Hot("consumer", "results", {"ids": "[11, 12]"}),
    Hot("consumer", "mark_sent", {"ids": "[11, 12]"}),
    Hot("consumer", "record_attempt", {"ids": "[11, 12]", "error": "e"}),
    Hot("consumer", "backlog", {"topic": "t", "limit": 1000}),
    Hot("consumer", "prune_outbox", {"topic": "t", "before": 0, "limit": 10}, rare=True),
    Hot("consumer", "prune_processed", {"topic": "t", "group": "g", "before": 0, "limit": 10}, rare=True),
]
COORDINATION = [
    Hot("coordination", "never_claimed", BATCH | BATCHES),
    Hot("coordination", "add_claims", BATCH | {"batches": json.dumps([["n1", 1, 2]])}),
    Hot("coordination", "status", BATCH),
    Hot("coordination", "expired", BATCH | {"limit": 10}),
    Hot("coordination", "take_over", BATCH | BATCHES),
    Hot("coordination", "renew", BATCH | BATCHES),
    Hot("coordination", "release", BATCH | BATCHES),
    Hot("coordination", "release_except", BATCH | BATCHES, rare=True, pages=2000),
    Hot("coordination", "release_earlier", BATCH | {"node": "other/", "life": "other/1"}, rare=True, pages=200),
    Hot("coordination", "claimed_except", BATCH | BATCHES),
    Hot("coordination", "complete", BATCH | BATCHES),
    Hot("coordination", "set_missing", BATCH | BATCHES | {"lacks": "[]", "stamp": "", "reach": 9}),
    Hot("coordination", "fail", BATCH | BATCHES | {"error": "e", "version": 1}),
    Hot("coordination", "reopen", BATCH | BATCHES),
    Hot("coordination", "failed", BATCH),
    Hot("coordination", "incomplete", BATCH),
    Hot("coordination", "reached", BATCH),
    Hot("coordination", "overlapping_gaps", BATCH | {"first": 1100, "last": 1200}),
    Hot("coordination", "add_gap", BATCH | {"first": 5, "last": 6, "first_detected": None, "status": "pending"}),
    Hot("coordination", "remove_gap", BATCH | {"first": 1100}),
    Hot("coordination", "make_gaps_permanent", BATCH | {"timeout_ms": 10**9}),
]
HOT = TOPICS + CONSUMER + COORDINATION


class Filled:
    """A session of a run whose tables were filled after it had prepared its statements. Nothing was analyzed."""

    def __init__(self, connection: psycopg.Connection, count: int) -> None:
        self._connection = connection
        for table in TABLES:
            connection.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = false)")  # it analyzes, too
        join, *fill = filter(str.strip, FILL.format(count=count).split(";"))
        connection.execute(join)
        connection.execute(POSITION)
        for hot in dict.fromkeys((hot.package, hot.name) for hot in HOT):
            connection.execute(f"PREPARE {_prepared(*hot)} AS {_numbered(*hot)[0]}")
        for hot in HOT:
            self.pages(hot, "force_generic_plan")
        connection.execute("DELETE FROM topic_positions")
        for statement in fill:  # each commits, so that the position sees all messages
            connection.execute(statement)

    def pages(self, hot: Hot, plan: str) -> int:
        """The number of pages that a statement reads. What it changes is undone."""
        values = [sql.Literal(hot.values[name]).as_string(self._connection) for name in _numbered(*hot[:2])[1]]
        call = f"EXECUTE {_prepared(*hot[:2])}" + (f"({', '.join(values)})" if values else "")
        with self._connection.transaction(force_rollback=True):
            self._connection.execute(f"SET LOCAL plan_cache_mode = {plan}")
            if hot.before:
                self._connection.execute(hot.before)
            rows = self._connection.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {call}")
            ((explained,),) = rows.fetchone()  # type: ignore[misc]
        return int(explained["Plan"]["Shared Hit Blocks"] + explained["Plan"]["Shared Read Blocks"])


def _prepared(package: str, name: str) -> str:
    return f"{package}_{name}"


def _numbered(package: str, name: str) -> tuple[str, list[str]]:
    """A statement with $1, $2, … and the names of its values."""
    text = re.sub(r"^--.*$", "", statements(f"ticklake.{package}", "postgres")[name], flags=re.MULTILINE)
    names = list(dict.fromkeys(re.findall(r"%\((\w+)\)[sb]", text)))
    return re.sub(r"%\((\w+)\)[sb]", lambda found: f"${names.index(found[1]) + 1}", text).replace("%%", "%"), names


@pytest.fixture(scope="module", params=[20_000, pytest.param(100_000, marks=pytest.mark.slow)])
def filled(request: pytest.FixtureRequest, postgres_url: str) -> Iterator[Filled]:
    run_id = f"20251014-143025-{uuid4().hex[:8]}"
    with Database(postgres_url) as database, psycopg.connect(postgres_url, autocommit=True) as connection:
        run = database.run(run_id)
        for package in ("ticklake.topics", "ticklake.consumer", "ticklake.coordination"):
            run.prepare(package)
        connection.execute(f'SET search_path = "{schema_name(run_id)}"')
        yield Filled(connection, request.param)
        database.drop(run_id)


@pytest.mark.parametrize("package", ["topics", "consumer", "coordination"])
@pytest.mark.parametrize("plan", ["new", "kept"])
def test_statements_read_few_pages_of_tables_that_were_never_analyzed(filled: Filled, package: str, plan: str) -> None:
    """Also with a plan that was made while the tables were empty."""
    mode = "force_custom_plan" if plan == "new" else "force_generic_plan"
    read = [
        (hot, filled.pages(hot, mode)) for hot in HOT if hot.package == package and not (hot.rare and plan == "kept")
    ]
    assert [(hot.name, pages) for hot, pages in read if pages > hot.pages] == []
