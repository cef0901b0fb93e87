"""The tracker of processed batches only saves work: what is done is what the table has, whatever the tracker says."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from in_process import InProcess

from ticklake import Database
from ticklake.database.names import schema_name
from ticklake.errors import TickLakeError
from ticklake.indexers.base import IndexerOptions, IndexerResources
from ticklake.indexers.batches import TopicBatches
from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.indexers.builtin.metadata import MetadataIndexer
from ticklake.monitoring import Monitor
from ticklake.topics import Run


@pytest.fixture
def monitor() -> Monitor:
    return Monitor("indexer")


@pytest.fixture
def batches(run: Run, maker: Any, monitor: Monitor) -> Iterator[TopicBatches]:
    """Three batch files, announced."""
    maker.run_id = run.id
    with run.writer("batch-topic") as writer:
        writer.send_many(maker.batches(3, ticks=1))
    reader = run.reader("batch-topic", group="g")
    with TopicBatches(run, reader, 300, maker.storage, monitor, run.processed("X")) as opened:
        yield opened


def drop_tracker(run: Run) -> None:
    with run.transaction() as transaction:
        transaction.execute_script("DROP TABLE idempotency_tracking")


def lag(run: Run) -> int:
    (group,) = run.groups.list("batch-topic")
    return group.lag


@pytest.mark.warns("could not be marked")
def test_a_tracker_that_is_gone_holds_up_no_ack(run: Run, batches: TopicBatches, monitor: Monitor) -> None:
    first = batches.poll(1, 0)
    drop_tracker(run)
    batches.done(first)
    assert lag(run) == 2
    others = batches.poll(10, 0)
    assert len(others) == 2
    batches.done(others)
    assert lag(run) == 0
    assert [error.code for error in monitor.errors] == ["MARK_FAILED", "MARK_FAILED"]


def mark_without_an_end(other: psycopg.Connection[Any], key: str) -> None:
    other.execute("INSERT INTO idempotency_tracking VALUES ('X', %s, now())", [key])


def lock_the_table(other: psycopg.Connection[Any], key: str) -> None:
    del key
    other.execute("LOCK TABLE idempotency_tracking")


@pytest.mark.warns("could not be marked")
@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
@pytest.mark.parametrize("hold", [mark_without_an_end, lock_the_table])
def test_a_tracker_that_somebody_keeps_locked_holds_up_no_ack(
    run: Run, batches: TopicBatches, database_url: str, hold: Callable[..., None]
) -> None:
    first = batches.poll(1, 0)
    with psycopg.connect(database_url) as other:
        other.execute(f'SET search_path TO "{schema_name(run.id)}"')
        hold(other, first[0].file.key)
        batches.done(first)
        assert lag(run) == 2
        others = batches.poll(10, 0)
        assert len(others) == 2
        batches.done(others)
        assert lag(run) == 0
        other.rollback()


@pytest.mark.warns("could not be marked")
@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
@pytest.mark.parametrize("state", ["53100", "58030", "57P01", "25006"], ids=["full", "I/O error", "away", "read-only"])
def test_a_tracker_with_an_outage_of_its_own_holds_up_no_ack(
    run: Run, batches: TopicBatches, monitor: Monitor, state: str
) -> None:
    found = batches.poll(10, 0)
    with run.transaction() as transaction:
        transaction.execute_script(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{state}'; END $$; "
            "CREATE TRIGGER refuse BEFORE INSERT ON idempotency_tracking FOR EACH ROW EXECUTE FUNCTION refuse()"
        )
    batches.done(found)
    assert lag(run) == 0
    assert [error.code for error in monitor.errors] == ["MARK_FAILED"]


@pytest.mark.warns("could not be marked")
def test_an_ack_that_fails_without_its_mark_too_is_an_error(run: Run, batches: TopicBatches) -> None:
    found = batches.poll(10, 0)
    with run.transaction() as transaction:
        transaction.execute_script("ALTER TABLE topic_consumer_group RENAME TO elsewhere")
    with pytest.raises(TickLakeError):
        batches.done(found)
    with run.transaction() as transaction:
        transaction.execute_script("ALTER TABLE elsewhere RENAME TO topic_consumer_group")
    batches.done(found)
    assert lag(run) == 0


def test_with_a_tracker_the_mark_and_the_ack_are_one(run: Run, batches: TopicBatches, monitor: Monitor) -> None:
    found = batches.poll(10, 0)
    batches.done(found)
    assert lag(run) == 0
    assert all(run.processed("X").contains(delivery.file.key) for delivery in found)
    assert len(monitor.errors) == 0


def test_a_batch_that_is_marked_is_skipped_only_if_the_table_has_its_ticks(
    run: Run, maker: Any, database: Database, tmp_path: Path
) -> None:
    """An older copy of the table is put back, and the group is set back to get the rest again."""
    maker.run_id = run.id
    maker.metadata(step=5)
    resources = IndexerResources(maker.storage, maker.lake, database, spark=InProcess)  # type: ignore[arg-type]
    MetadataIndexer("metadata-indexer", resources).write(run.id)
    options = IndexerOptions(run.id, until_caught_up=True, enable_idempotency=True)

    def index(*batches: Any) -> int:
        with run.writer("batch-topic") as writer:
            writer.send_many(batches)
        indexer = EnvironmentIndexer("e", resources, options)
        indexer.run()
        return indexer.monitor.counter("batches_skipped").value

    table = Path(str(maker.lake.location(run.id, "environment_data")))
    assert index(maker.batch(0, 5, step=5)) == 0
    shutil.copytree(table, tmp_path / "backup")
    assert index(maker.batch(10, 15, step=5)) == 0
    table.rename(tmp_path / "lost")
    (tmp_path / "backup").rename(table)
    run.groups.reset("batch-topic", "e", "earliest")
    assert index() == 1
    assert maker.keys() == sorted(maker.expected_keys(range(0, 20, 5)))
