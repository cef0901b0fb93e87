"""Hot statements look things up however much is stored: guarded by their plans, not by a stopwatch."""

from __future__ import annotations

from pathlib import Path

import pytest

from ticklake import Database
from ticklake.database.sqlite.run_file import SqliteSchema
from ticklake.database.statements import statements

VALUES = {"topic": "t", "group": "g", "event_ids": "[]", "ids": "[]", "limit": 1, "before": 1, "batch_id": "b"} | {
    "now": 1,
    "sequence": 1,
    "held": "[]",
}
CONSUMER = [
    "find_processed",
    "unsent",
    "results",
    "outbox_head",
    "mark_sent",
    "backlog",
    "prune_processed",
    "prune_outbox",
]
EVENTS = [
    "next_batch",
    "claim_batch",
    "finish_batch",
    "count_pending",
    "release_all",
    "release_unknown",
    "find_waiting",
    "find_not_waiting",
    "size_of_pending",
    "prune_batches",
    "prune_ahead",
]


def scans(plan: list[tuple[object, ...]], tables: tuple[str, ...]) -> list[str]:
    """The steps that read one of our tables from end to end, through whatever index."""
    steps = [str(row[3]) for row in plan]
    return [step for step in steps if step.startswith("SCAN") and step.split()[1] in tables]


@pytest.mark.parametrize("name", CONSUMER)
def test_a_consumer_reads_no_table_from_end_to_end(tmp_path: Path, name: str) -> None:
    with Database(f"sqlite:///{tmp_path}") as database:
        run = database.run("r")
        run.prepare("ticklake.topics")
        run.prepare("ticklake.consumer")
        with run.reading() as view:
            text = statements("ticklake.consumer", "sqlite")[name]
            plan = view.execute(f"EXPLAIN QUERY PLAN {text}", VALUES)
    assert scans(plan, ("processed_messages", "outbox_messages", "m")) == []


@pytest.mark.parametrize("name", EVENTS)
def test_a_queue_reads_no_table_from_end_to_end(tmp_path: Path, name: str) -> None:
    schema = SqliteSchema(tmp_path / "q.db", "indexer-queue")
    schema.prepare("ticklake.events")
    with schema.reading() as view:
        plan = view.execute(f"EXPLAIN QUERY PLAN {statements('ticklake.events', 'sqlite')[name]}", VALUES)
    schema.close()
    found = scans(plan, ("pending_batches", "processed_events", "b", "batch_sequence", "s"))
    assert [step for step in found if "batches_waiting" not in step] == [], "that index has only what waits"
