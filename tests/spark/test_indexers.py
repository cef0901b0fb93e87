"""The indexers around the flush: components, counters, discovery, waiting, stopping, and what goes wrong."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from ticklake import BatchInfo, MetadataInfo
from ticklake.coordination.groups import unbind
from ticklake.errors import (
    GroupFillsAnotherTable,
    MetadataNotAnnounced,
    MetadataTimeout,
    RunDiscoveryTimeout,
    WorkersNotReady,
)
from ticklake.indexers.base import IndexerOptions, IndexerResources
from ticklake.indexers.batch import BatchIndexer
from ticklake.indexers.builtin.dummy import DummyIndexer
from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.indexers.builtin.metadata import MetadataIndexer
from ticklake.indexers.builtin.minimal import MinimalBatchIndexer
from ticklake.indexers.builtin.simple import SimpleBatchIndexer
from ticklake.lake.flush.job import run_tasks, warm_up
from ticklake.lake.lake import Lake
from ticklake.lake.metadata import read_metadata
from ticklake.lake.table import Table
from ticklake.storage.names import new_run_id
from ticklake.topics import Database
from ticklake.world import World

Index = Callable[..., BatchIndexer]


def test_the_dummy_indexer_counts_and_writes_nothing(maker: Any, index_topic: Index) -> None:
    maker.metadata()
    maker.publish(*maker.batches(2, ticks=20))
    count = index_topic(DummyIndexer).monitor.counter
    assert count("batches_processed").value == 2
    assert count("ticks_processed").value == 40
    assert count("cells_observed").value == 400
    assert count("organisms_observed").value == 40
    assert [path.name for path in (maker.lake_folder / maker.run_id).iterdir()] == ["metadata"]


def test_without_buffering_each_tick_is_a_flush_and_the_file_one_ack(maker: Any, index_topic: Index) -> None:
    maker.metadata(step=10)
    maker.publish(maker.batch(0, 30, step=10))
    indexer = index_topic(SimpleBatchIndexer)
    assert indexer.monitor.counter("flushes").value == 4
    assert indexer.monitor.counter("batches_processed").value == 1
    assert sorted(maker.rows("simple_data").to_pylist(), key=lambda row: row["tick_number"]) == [
        {"tick_number": tick, "value": 10} for tick in (0, 10, 20, 30)
    ]


def test_the_minimal_indexer_needs_nothing_but_batches(maker: Any, resources: IndexerResources) -> None:
    maker.publish(maker.batch(0, 2))
    indexer = MinimalBatchIndexer("minimal", resources, IndexerOptions(maker.run_id, until_caught_up=True))
    indexer.run()
    assert indexer.monitor.counter("ticks_processed").value == 3
    assert indexer.monitor.counter("batches_processed").value == 1


def test_a_batch_that_was_done_is_skipped_unread(maker: Any, index_topic: Index) -> None:
    maker.metadata()
    batch = maker.batch(0, 9)
    maker.publish(batch)
    index_topic(EnvironmentIndexer, enable_idempotency=True)
    (Path(maker.storage.url) / batch.storage_key).unlink()
    maker.publish(batch)
    again = index_topic(EnvironmentIndexer, enable_idempotency=True)
    assert again.monitor.counter("batches_skipped").value == 1
    assert again.monitor.counter("batches_failed").value == 0


@pytest.mark.warns("DEAD_LETTER")
def test_a_batch_is_marked_only_when_it_is_flushed(maker: Any, index_topic: Index, database: Database) -> None:
    maker.metadata()
    batch = maker.batch(0, 9)
    path = Path(maker.storage.url) / batch.storage_key
    path.write_bytes(path.read_bytes()[:-3])
    maker.publish(batch)
    index_topic(EnvironmentIndexer, enable_idempotency=True, max_delivery_attempts=1)
    with database.run(maker.run_id).transaction() as transaction:
        assert transaction.execute("SELECT count(*) FROM idempotency_tracking", {}) == [(0,)]


def test_metadata_becomes_a_table_of_keys_and_values(
    maker: Any, resources: IndexerResources, database: Database
) -> None:
    maker.metadata(step=5, shape=(4, 3, 2))
    announce_metadata(database, maker)
    MetadataIndexer("metadata-indexer", resources, IndexerOptions(maker.run_id)).run()
    rows = {row["key"]: row["value"] for row in maker.rows("metadata").to_pylist()}
    assert rows["environment"] == '{"dimensions": 3, "shape": [4, 3, 2], "toroidal": [true, true, true]}'
    assert '"samplingInterval": 5' in rows["simulation_info"]
    metadata = read_metadata(maker.lake.location(maker.run_id, "metadata"), maker.run_id)
    assert metadata is not None
    assert World.of(metadata) == World(maker.run_id, (4, 3, 2), (True, True, True), 5)


def test_metadata_indexed_twice_is_there_once(maker: Any, resources: IndexerResources, database: Database) -> None:
    maker.metadata()
    for _ in range(2):
        announce_metadata(database, maker)
        MetadataIndexer("metadata-indexer", resources, IndexerOptions(maker.run_id)).run()
    assert maker.rows("metadata").num_rows == 6


def test_a_metadata_indexer_without_metadata_fails_fast(maker: Any, resources: IndexerResources) -> None:
    indexer = MetadataIndexer("metadata-indexer", resources, IndexerOptions(maker.run_id, topic_poll_timeout_ms=10))
    with pytest.raises(MetadataNotAnnounced, match="metadata persistence service"):
        indexer.run()


def test_a_batch_indexer_without_metadata_gives_up_in_time(maker: Any, resources: IndexerResources) -> None:
    options = IndexerOptions(maker.run_id, poll_interval_ms=5, max_poll_duration_ms=20)
    with pytest.raises(MetadataTimeout, match=maker.run_id):
        EnvironmentIndexer("environment-indexer", resources, options).run()


def test_a_batch_indexer_waits_for_metadata(
    maker: Any, resources: IndexerResources, index_metadata: Callable[[], None], eventually: Callable[..., None]
) -> None:
    maker.publish(maker.batch(0, 9))
    options = IndexerOptions(maker.run_id, poll_interval_ms=5, flush_timeout_ms=1)
    with EnvironmentIndexer("environment-indexer", resources, options) as indexer:
        maker.metadata()
        index_metadata()
        eventually(lambda: indexer.monitor.counter("batches_processed").value == 1)


def test_without_a_run_id_the_next_run_that_starts_is_indexed(
    maker: Any, resources: IndexerResources, eventually: Callable[..., None]
) -> None:
    maker.metadata()
    indexer = EnvironmentIndexer(
        "environment-indexer", resources, IndexerOptions(poll_interval_ms=5, flush_timeout_ms=1)
    )
    maker.run_id = new_run_id(datetime.now(UTC))
    with indexer:
        maker.metadata()
        MetadataIndexer("metadata-indexer", resources).write(maker.run_id)
        maker.publish(maker.batch(0, 4))
        eventually(lambda: indexer.monitor.counter("batches_processed").value == 1)
    assert indexer.run_id == maker.run_id
    assert maker.keys() == sorted(maker.expected_keys(range(5)))


def test_waiting_for_a_run_ends_in_time(maker: Any, resources: IndexerResources) -> None:
    maker.metadata()
    options = IndexerOptions(poll_interval_ms=5, max_poll_duration_ms=20)
    with pytest.raises(RunDiscoveryTimeout, match="run_id"):
        EnvironmentIndexer("environment-indexer", resources, options).run()


def test_a_stop_flushes_and_acknowledges_what_is_buffered(
    maker: Any, resources: IndexerResources, index_metadata: Callable[[], None], eventually: Callable[..., None]
) -> None:
    maker.metadata()
    index_metadata()
    maker.publish(maker.batch(0, 9))
    options = IndexerOptions(maker.run_id, flush_timeout_ms=3_600_000)
    indexer = EnvironmentIndexer("environment-indexer", resources, options)
    with indexer:
        eventually(lambda: indexer.monitor.snapshot().get("batches_buffered") == 1)
        assert indexer.monitor.counter("flushes").value == 0
    assert indexer.monitor.counter("batches_processed").value == 1
    assert maker.keys() == sorted(maker.expected_keys(range(10)))


def test_a_paused_indexer_holds_nothing_and_goes_on_when_resumed(
    maker: Any, resources: IndexerResources, index_metadata: Callable[[], None], eventually: Callable[..., None]
) -> None:
    maker.metadata()
    index_metadata()
    options = IndexerOptions(maker.run_id, flush_timeout_ms=3_600_000)
    with EnvironmentIndexer("environment-indexer", resources, options) as indexer:
        maker.publish(maker.batch(0, 9))
        eventually(lambda: indexer.monitor.snapshot().get("batches_buffered") == 1)
        indexer.pause()
        eventually(lambda: indexer.monitor.counter("batches_processed").value == 1)
        maker.publish(maker.batch(10, 19))
        indexer.resume()
        eventually(lambda: indexer.monitor.snapshot().get("batches_buffered") == 1)
    assert maker.keys() == sorted(maker.expected_keys(range(20)))


@pytest.mark.warns("cannot be reached", "Flush failed")
def test_a_storage_that_disappears_for_a_while_costs_no_message(
    maker: Any, resources: IndexerResources, index_metadata: Callable[[], None], eventually: Callable[..., None]
) -> None:
    maker.metadata()
    index_metadata()
    maker.publish(*maker.batches(2, ticks=10))
    place = Path(maker.storage.url)
    place.rename(place.with_name("away"))
    options = IndexerOptions(maker.run_id, flush_timeout_ms=1, max_delivery_attempts=1)
    with EnvironmentIndexer("environment-indexer", resources, options) as indexer:
        eventually(lambda: len(indexer.monitor.errors) > 0)
        place.with_name("away").rename(place)
        eventually(lambda: indexer.monitor.counter("batches_processed").value == 2)
    assert maker.keys() == sorted(maker.expected_keys(range(20)))


@pytest.mark.warns("DEAD_LETTER", "trying again")
def test_a_message_that_is_no_batch_is_set_aside(maker: Any, index_topic: Index, database: Database) -> None:
    maker.metadata()
    with database.run(maker.run_id).writer("batch-topic") as writer:
        writer.send(MetadataInfo(simulation_run_id=maker.run_id))
        writer.send(BatchInfo(simulation_run_id=maker.run_id, storage_key="../../etc/passwd"))
        writer.send(BatchInfo(simulation_run_id=maker.run_id, storage_key=f"{maker.run_id}/batch_7_9.pb"))
    maker.publish(maker.batch(0, 9))
    indexer = index_topic(EnvironmentIndexer, max_delivery_attempts=1)
    assert indexer.monitor.counter("batches_failed").value == 3
    assert maker.keys() == sorted(maker.expected_keys(range(10)))


@pytest.mark.warns("DEAD_LETTER")
def test_ticks_off_the_sampling_grid_are_refused(maker: Any, index_topic: Index) -> None:
    maker.metadata(step=10)
    maker.publish(maker.batch(0, 20, step=5), maker.batch(30, 50, step=10))
    indexer = index_topic(EnvironmentIndexer, max_delivery_attempts=1)
    assert maker.keys() == sorted(maker.expected_keys([30, 40, 50]))
    assert "samples every 10 ticks" in next(iter(indexer.monitor.errors)).message


def test_a_second_lake_in_one_group_is_refused_and_gets_everything_once_the_group_is_handed_over(
    maker: Any, index_topic: Index, database: Database, spark: Any, tmp_path: Path
) -> None:
    maker.metadata()
    maker.publish(maker.batch(0, 9))
    index_topic(EnvironmentIndexer, enable_idempotency=True)
    database.run(maker.run_id).groups.reset("batch-topic", "EnvironmentIndexer", "earliest")
    maker.lake = Lake(tmp_path / "other")
    resources = IndexerResources(maker.storage, maker.lake, database, spark=lambda: spark)
    MetadataIndexer("metadata-indexer", resources).write(maker.run_id)
    options = IndexerOptions(maker.run_id, until_caught_up=True, enable_idempotency=True)
    with pytest.raises(GroupFillsAnotherTable):
        EnvironmentIndexer("EnvironmentIndexer", resources, options).run()
    unbind(database.run(maker.run_id), "batch-topic", "EnvironmentIndexer")
    EnvironmentIndexer("EnvironmentIndexer", resources, options).run()
    assert maker.keys() == sorted(maker.expected_keys(range(10)))


def test_a_paused_metadata_indexer_goes_on_waiting(
    maker: Any, resources: IndexerResources, database: Database, eventually: Callable[..., None]
) -> None:
    with MetadataIndexer("metadata-indexer", resources, IndexerOptions(maker.run_id)) as indexer:
        indexer.pause()
        indexer.resume()
        maker.metadata()
        announce_metadata(database, maker)
        eventually(lambda: indexer.state == "stopped")
    assert maker.rows("metadata").num_rows == 6


class Poisonous(BatchIndexer):
    """Dies on tick 15, taking its Python worker along."""

    table: ClassVar[Table] = Table("ticks", pa.schema([("tick_number", pa.int64())]), ("tick_number",))

    @staticmethod
    def rows(ticks: pa.RecordBatch, world: World | None) -> pa.RecordBatch:
        if 15 in ticks.column("tick_number").to_pylist():
            os.kill(os.getpid(), signal.SIGKILL)
        return ticks.select(["tick_number"])


@pytest.mark.warns("DEAD_LETTER", "Flush failed")
def test_a_batch_that_kills_its_worker_is_found_and_set_aside(maker: Any, index_topic: Index) -> None:
    maker.metadata()
    maker.publish(*maker.batches(3, ticks=10))
    indexer = index_topic(Poisonous, max_delivery_attempts=1)
    assert sorted(maker.rows("ticks").column(0).to_pylist()) == [*range(10), *range(20, 30)]
    assert indexer.monitor.counter("batches_failed").value == 1


class Faulty(Poisonous):
    """Gives rows for a tick it was not given."""

    @staticmethod
    def rows(ticks: pa.RecordBatch, world: World | None) -> pa.RecordBatch:
        later = [tick + 1000 if tick == 15 else tick for tick in ticks.column("tick_number").to_pylist()]
        return pa.RecordBatch.from_arrays([pa.array(later, pa.int64())], names=["tick_number"])


@pytest.mark.warns("DEAD_LETTER")
def test_rows_of_other_ticks_are_refused(maker: Any, index_topic: Index) -> None:
    maker.metadata()
    maker.publish(*maker.batches(2, ticks=10))
    indexer = index_topic(Faulty, max_delivery_attempts=1)
    assert sorted(maker.rows("ticks").column(0).to_pylist()) == list(range(10))
    assert "tick 1015" in next(iter(indexer.monitor.errors)).message


def announce_metadata(database: Database, maker: Any) -> None:
    with database.run(maker.run_id).writer("metadata-topic") as writer:
        key = f"{maker.run_id}/metadata.pb.zst"
        writer.send(MetadataInfo(simulation_run_id=maker.run_id, storage_key=key))


def test_a_worker_does_not_walk_through_all_that_it_has_loaded_after_every_task(
    spark: Any, eventually: Callable[..., None]
) -> None:
    """PySpark collects garbage there each time."""
    eventually(lambda: min(run_tasks(spark, "a table", 4, lambda _: [gc.get_freeze_count()])) > 10_000)


def test_warm_workers_have_loaded_the_module_of_the_rows(spark: SparkSession) -> None:
    def loaded() -> list[bool]:
        return run_tasks(spark, "no table", 2, lambda _: ["wave" in sys.modules])

    assert not any(loaded())
    warm_up(spark, importlib.import_module("wave").open)  # which no other test has them load
    assert any(loaded())


def test_workers_that_cannot_load_it_are_told_of_at_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_here.py").write_text("def rows(ticks, world): return ticks")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(WorkersNotReady, match="No module named 'only_here'"):
        warm_up(spark, importlib.import_module("only_here").rows)


JVM_KILLED = """
from pyspark import SparkContext
from ticklake.errors import SparkUnavailable
from ticklake.lake.flush.job import run_tasks
from ticklake.lake.session.session import open_session
session = lambda: open_session("local[1]", {"spark.driver.memory": "512m"})
tasks = lambda: run_tasks(session(), "no table", 1, lambda number: [number])
def kill():
    SparkContext._gateway.proc.kill()
    SparkContext._gateway.proc.wait()
%s
try:
    tasks()
except SparkUnavailable:
    print("unavailable", *tasks())
session().stop()
"""
AT_WORK = """
assert tasks() == [0]
kill()
"""
AT_ITS_START = """
begin = SparkContext._do_init
def killed(self, *rest):
    SparkContext._do_init = begin
    kill()
    begin(self, *rest)
SparkContext._do_init = killed
"""


@pytest.mark.parametrize(
    "killed",
    [pytest.param(AT_WORK, id="at work"), pytest.param(AT_ITS_START, id="at its start", marks=pytest.mark.slow)],
)
def test_a_jvm_that_was_killed_is_replaced(tmp_path: Path, killed: str) -> None:
    command = [sys.executable, "-c", JVM_KILLED % killed]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300, check=False)
    assert done.stdout == "unavailable 0\n", done.stderr


def test_an_indexer_that_writes_nothing_needs_no_lake(maker, database, spark) -> None:
    maker.metadata(step=1)
    maker.publish(*maker.batches(2, ticks=10))
    resources = IndexerResources(maker.storage, database=database, spark=lambda: spark)
    indexer = DummyIndexer("dummy-indexer", resources, IndexerOptions(maker.run_id, until_caught_up=True))
    indexer.run()
    assert indexer.monitor.counter("ticks_processed").value == 20
    assert not maker.lake_folder.exists()
