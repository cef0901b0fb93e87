"""Indexers on the worker's Spark session, over a small run of their own; and clusters of real processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession

from ticklake.indexers.base import IndexerOptions, IndexerResources
from ticklake.indexers.batch import BatchIndexer
from ticklake.indexers.batches import StoredBatches
from ticklake.indexers.builtin.metadata import MetadataIndexer
from ticklake.topics import Database

Index = Callable[..., BatchIndexer]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/spark" in item.path.as_posix():
            item.add_marker(pytest.mark.spark)


@pytest.fixture
def database(maker: Any) -> Iterator[Database]:
    with Database(maker.database_url) as database:
        yield database


@pytest.fixture
def resources(maker: Any, database: Database, spark: SparkSession) -> IndexerResources:
    return IndexerResources(maker.storage, maker.lake, database, spark=lambda: spark)


@pytest.fixture
def index_metadata(maker: Any, resources: IndexerResources) -> Callable[[], None]:
    return lambda: MetadataIndexer("metadata-indexer", resources).write(maker.run_id)


@pytest.fixture
def index_topic(maker: Any, resources: IndexerResources, index_metadata: Callable[[], None]) -> Index:
    """Runs an indexer over what is on the topic until it has caught up."""

    def index(kind: type[BatchIndexer], **options: Any) -> BatchIndexer:
        index_metadata()
        indexer = kind(kind.__name__, resources, IndexerOptions(maker.run_id, until_caught_up=True, **options))
        indexer.run()
        return indexer

    return index


@pytest.fixture
def index_storage(maker: Any, resources: IndexerResources, index_metadata: Callable[[], None]) -> Index:
    """Runs an indexer straight over the files in storage."""

    def index(kind: type[BatchIndexer], **options: Any) -> BatchIndexer:
        index_metadata()
        indexer = kind(
            kind.__name__,
            resources,
            IndexerOptions(maker.run_id, until_caught_up=True, **options),
            batches_of=lambda run_id, monitor: StoredBatches(maker.storage, run_id, monitor),
        )
        indexer.run()
        return indexer

    return index


LOOPBACK = {"SPARK_LOCAL_IP": "127.0.0.1"}
SMALL_JVM = {"SPARK_DAEMON_MEMORY": "512m", "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}


class SparkProcesses:
    """Spark's own daemons and programs that use them, from the pyspark package, on loopback, on ports that are free.

    Each is in a process group of its own, so that a kill takes a worker's executors with it.
    """

    def __init__(self, directory: Path, eventually: Callable[..., None]) -> None:
        self._directory, self._eventually = directory, eventually
        self._children: list[subprocess.Popen[bytes]] = []

    def master(self) -> str:
        """Starts a standalone master and returns its address."""
        kind = "org.apache.spark.deploy.master.Master"
        self.daemon("master", kind, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        return self.announced("master", r"Starting Spark master at (spark://\S+)")

    def worker(self, name: str, master: str, **environment: str) -> subprocess.Popen[bytes]:
        """Starts a worker with one core, whose executors inherit the environment."""
        size = ("--cores", "1", "--memory", "600m", "--work-dir", str(self._directory / name))
        kind = ("org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--webui-port", "0")
        child = self.daemon(name, *kind, *size, master, **environment)
        self.announced(name, "Successfully registered with (master)")
        return child

    def connect_server(self, name: str = "server", port: str = "0", **environment: str) -> tuple[str, Any]:
        """Starts a Spark Connect server on two cores; its address and its process."""
        server = ("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal")
        settings = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": port,
            "spark.driver.extraJavaOptions": SMALL_JVM["SPARK_DAEMON_JAVA_OPTS"],
            "spark.ui.enabled": "false",
        }
        options = [word for setting in settings.items() for word in ("--conf", "=".join(setting))]
        submit = ("org.apache.spark.deploy.SparkSubmit", "--master", "local[2]")
        child = self.daemon(name, *submit, *options, *server, **environment)
        found = self.announced(name, r"Spark Connect server started at: \S*:(\d+)")
        return f"sc://127.0.0.1:{found}", child

    def daemon(self, name: str, *command: str, **environment: str) -> subprocess.Popen[bytes]:
        home = Path(pyspark.__file__).parent
        fixed = LOOPBACK | SMALL_JVM | {"SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
        fixed["SPARK_DAEMON_JAVA_OPTS"] += f" {os.environ['SPARK_SUBMIT_OPTS']}"
        return self.start(name, str(home / "bin" / "spark-class"), *command, **fixed, **environment)

    def start(self, name: str, *command: str, **environment: str) -> subprocess.Popen[bytes]:
        with self.log(name).open("wb") as log:
            child = subprocess.Popen(
                command, stdout=log, stderr=log, env=os.environ | environment, start_new_session=True
            )
        self._children.append(child)
        return child

    def index(self, maker: Any, master: str, *options: str) -> subprocess.Popen[bytes]:
        """Starts `ticklake index` for the maker's run."""
        places = ("--storage", maker.storage.url, "--lake", str(maker.lake.root), "--master", master)
        command = (
            sys.executable,
            "-c",
            "from ticklake.cli import main; main()",
            "index",
            maker.run_id,
            *places,
            *options,
        )
        return self.start("index", *command, **LOOPBACK)

    def log(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def announced(self, name: str, pattern: str) -> str:
        """Waits for a line in the log of the process started last."""
        child, log = self._children[-1], self.log(name)
        self._eventually(lambda: re.search(pattern, log.read_text()) is not None or child.poll() is not None)
        found = re.search(pattern, log.read_text())
        assert found is not None, log.read_text()[-2000:]
        return found[1]

    def end(self) -> None:
        for child in self._children:
            kill(child)


def kill(child: subprocess.Popen[bytes]) -> None:
    """SIGKILL to a process and all that it has started."""
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


@pytest.fixture(scope="session")
def spark_processes(eventually: Callable[..., None]) -> Callable[[Path], SparkProcesses]:
    return lambda directory: SparkProcesses(directory, eventually)


@pytest.fixture
def processes(tmp_path: Path, spark_processes: Callable[[Path], SparkProcesses]) -> Iterator[SparkProcesses]:
    started = spark_processes(tmp_path)
    yield started
    started.end()
