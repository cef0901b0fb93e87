"""The same through Spark Connect: a server in a process of its own, and no JVM here."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from ticklake.errors import ConnectMissing, SparkUnavailable
from ticklake.indexers.base import IndexerOptions, IndexerResources
from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.indexers.builtin.metadata import MetadataIndexer
from ticklake.indexers.builtin.organism import OrganismIndexer
from ticklake.lake.session.session import (
    job_died,
    open_session,
    parallelism,
    reason_of,
    share_cores_fairly,
    ship_with_jobs,
)
from ticklake.topics import Database


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, spark_processes: Any) -> Iterator[str]:
    processes = spark_processes(tmp_path_factory.mktemp("connect"))
    yield processes.connect_server()[0]
    processes.end()


@pytest.fixture
def session(server: str) -> Iterator[Any]:
    session = open_session(server)
    yield session
    session.stop()


@pytest.fixture
def spark(session: Any) -> Any:
    return session


def test_both_tables_are_indexed_through_a_connect_server(maker: Any, index_topic: Callable[..., Any]) -> None:
    maker.metadata()
    maker.publish(*maker.batches(3))
    index_topic(EnvironmentIndexer)
    index_topic(OrganismIndexer)
    assert maker.keys() == sorted(maker.expected_keys(range(300)))
    assert maker.keys("organism_data", "organism_id") == [(tick, 1) for tick in range(300)]


def test_the_task_count_is_that_of_the_servers_cluster(session: Any) -> None:
    assert parallelism(session) == 2


def test_pools_are_left_to_the_server(session: Any) -> None:
    share_cores_fairly(session, "environment_data")
    assert session.range(3).count() == 3


def test_settings_reach_the_server_and_those_it_does_not_take_are_left(server: str) -> None:
    session = open_session(server, {"spark.sql.shuffle.partitions": "3", "spark.executor.memory": "7g"})
    assert session.conf.get("spark.sql.shuffle.partitions") == "3"
    session.stop()


def test_an_error_in_a_task_is_a_job_that_died_and_one_line(session: Any) -> None:
    def raising(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        raise ValueError("no good")

    def dying(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        os._exit(3)

    reasons = []
    for task in (raising, dying):
        with pytest.raises(Exception) as caught:
            session.range(0, 1, 1, 1).mapInArrow(task, "id long").collect()
        assert job_died(caught.value)
        reasons.append(reason_of(caught.value))
    assert reasons[0] == "ValueError: no good"
    assert reasons[1].startswith("Python worker exited unexpectedly")


def test_an_indexer_of_ones_own_travels_with_its_jobs(
    maker: Any, index_topic: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Path(__file__).parents[2] / "examples" / "own_indexer.py"
    module = ModuleType("nobody_else_has_this")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(source.read_text().replace("__main__", "never"), str(source), "exec"), module.__dict__)
    ship_with_jobs(module)
    kind = next(one for one in vars(module).values() if isinstance(one, type) and one.__module__ == module.__name__)
    maker.metadata()
    maker.publish(*maker.batches(1))
    index_topic(kind)
    assert maker.rows(kind.table.name).num_rows > 0


def test_a_server_that_is_not_there_is_one_line() -> None:
    with pytest.raises(SparkUnavailable, match=r"no connection to 127\.0\.0\.1:1 .*Is the master running"):
        open_session("sc://127.0.0.1:1")


def test_missing_packages_are_one_line(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql.connect.session", None)
    with pytest.raises(ConnectMissing, match=r"pip install \"ticklake\[connect\]\""):
        open_session(server, {"spark.sql.shuffle.partitions": "9"})


@pytest.mark.warns("Spark does not answer")
def test_a_session_that_the_server_has_closed_is_replaced(
    maker: Any, server: str, index_topic: Callable[..., Any], resources: IndexerResources
) -> None:
    first = open_session(server)
    first.client.release_session()
    maker.metadata()
    maker.publish(*maker.batches(1))
    MetadataIndexer("metadata-indexer", resources).write(maker.run_id)
    through = IndexerResources(maker.storage, maker.lake, resources.database, spark=lambda: open_session(server))
    indexer = EnvironmentIndexer("environment", through, IndexerOptions(maker.run_id, until_caught_up=True))
    indexer.run()
    assert maker.keys() == sorted(maker.expected_keys(range(100)))
    assert open_session(server) is not first


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.warns("Spark does not answer")
def test_a_server_that_is_killed_in_the_middle_of_a_flush_is_found_again_when_it_is_back(
    maker: Any, processes: Any, database: Database, eventually: Callable[..., None], tmp_path: Path
) -> None:
    maker.metadata()
    maker.publish(*maker.batches(2))
    mark = tmp_path / "mark"
    hold = {"TICKLAKE_FAULT": "lake.parquet.write:hold", "TICKLAKE_FAULT_MARK": str(mark)}
    address, server = processes.connect_server("first", **hold)
    resources = IndexerResources(maker.storage, maker.lake, database, spark=lambda: open_session(address))
    MetadataIndexer("metadata-indexer", resources).write(maker.run_id)
    indexer = EnvironmentIndexer("environment", resources, IndexerOptions(maker.run_id, until_caught_up=True))
    indexer.start()
    eventually(mark.exists)
    os.killpg(server.pid, signal.SIGKILL)
    server.wait()
    processes.connect_server("second", port=address.rpartition(":")[2])

    assert indexer.join(240)
    assert indexer.error is None
    assert maker.keys() == sorted(maker.expected_keys(range(200)))
    open_session(address).stop()
