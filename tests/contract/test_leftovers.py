"""What a node says after a stop is what is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

from ticklake import BatchInfo, Database
from ticklake.indexers.base import IndexerOptions, IndexerResources
from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.node.leftovers import Leftovers, leftovers_of
from ticklake.services import PersistenceService, ReconciliationService, TickQueue
from ticklake.storage import EncodedTick, Storage

TOPIC = "batch-topic"
WRITTEN = "Everything that was accepted is written."


def indexer(database: Database, root: Path, run_id: str, group: str) -> EnvironmentIndexer:
    resources = IndexerResources(Storage(root), database=database, topic=TOPIC, group=group)
    return EnvironmentIndexer(group, resources, IndexerOptions(run_id=run_id))


def test_files_without_rows_are_counted_by_group(database: Database, tmp_path: Path) -> None:
    run = database.run(f"20251014-143025-{uuid4().hex[:8]}")
    with run.writer(TOPIC) as writer:
        writer.send_many([BatchInfo(tick_start=tick) for tick in range(7)])
    with run.reader(TOPIC, group="some") as reader:
        for message in reader.poll_many(4, 5):
            reader.ack(message)
    with run.reader(TOPIC, group="all") as reader:
        reader.ack_many(reader.poll_many(7, 5))
    services = [indexer(database, tmp_path, run.id, group) for group in ("some", "all", "none")]
    found = leftovers_of(services)
    assert found.unindexed == {"some": 3, "none": 7}
    text = f"{WRITTEN} Not indexed yet: 3 files by some, 7 files by none. `ticklake index RUN` indexes them."
    assert str(found) == text


def test_files_without_a_message_are_counted(database: Database, tmp_path: Path) -> None:
    run = database.run(f"20251014-143025-{uuid4().hex[:8]}")
    service = PersistenceService(run, Storage(tmp_path), TickQueue())
    assert leftovers_of([service]).unannounced == 0
    for number in range(3):
        service._announcer.add(f"file {number}", BatchInfo(tick_start=number))
    assert str(leftovers_of([service])) == (
        "Everything that was accepted is written. 3 files are not announced, because the database is away. "
        "`ticklake reconcile RUN --apply` announces them."
    )
    found = leftovers_of([service, ReconciliationService(database, Storage(tmp_path))])
    assert str(found).endswith("away. Reconciliation announces them.")


def test_ticks_that_nobody_could_write_are_not_called_written(database: Database, tmp_path: Path) -> None:
    run, queue = database.run(f"20251014-143025-{uuid4().hex[:8]}"), TickQueue()
    for number in range(3):
        queue.put(EncodedTick(number, b"tick"))
    stopped = PersistenceService(run, Storage(tmp_path), queue)
    assert str(leftovers_of([stopped], [queue])) == (
        "3 ticks are lost: no persistence service was running to write them."
    )


def test_a_run_that_was_deleted_meanwhile_has_nothing_left(database: Database, tmp_path: Path) -> None:
    run = database.run(f"20251014-143025-{uuid4().hex[:8]}")
    run.topics()
    left = indexer(database, tmp_path, run.id, "g")
    database.drop(run.id)
    assert leftovers_of([left]).unknown == ()


def test_a_node_that_has_nothing_left_says_nothing(database: Database, tmp_path: Path) -> None:
    run_id = f"20251014-143025-{uuid4().hex[:8]}"
    database.run(run_id).topics()
    assert str(leftovers_of([indexer(database, tmp_path, run_id, "g")])) == "Everything that was accepted is written."


def test_what_is_not_known_is_said(tmp_path: Path) -> None:
    gone: Any = f"postgresql:///x?host={tmp_path}"
    with Database(gone) as database:
        found = leftovers_of([indexer(database, tmp_path, "20251014-143025-550e8400", "g")])
    assert str(found) == f"{WRITTEN} What is left for g is not known: the database does not answer."


def test_runs_that_were_not_counted_are_mentioned() -> None:
    found = Leftovers(unindexed={"g": 5}, more=frozenset({"g"}))
    assert str(found).endswith(" Not indexed yet: more than 5 files by g. The next start continues with them.")
