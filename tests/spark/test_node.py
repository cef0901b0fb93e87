"""One node from one configuration, as a process: simulation, persistence, metadata, both indexers. And for a while."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import psutil
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from ticklake.config.templates import STARTER

MINUTE = 60.0
# After so many a node has loaded, cached and allocated what it goes on with.
WARM_MERGES = 12
MEBIBYTE = 1 << 20
TOKEN = "a-token-for-the-soak-only"
INDEXERS = ("environment-indexer", "organism-indexer")


class Usage(NamedTuple):
    """What a node holds: megabytes and handles of its own process, megabytes of the whole tree, files in its temp."""

    own: float
    tree: float
    threads: int
    handles: int
    connections: float
    temporary: int


class Running:
    """A `ticklake run` with Spark, and its API."""

    def __init__(self, process: subprocess.Popen[str], temporary: Path) -> None:
        self.process, self._temporary = process, temporary
        assert process.stderr
        lines = iter(process.stderr.readline, "")
        url = next(line for line in lines if line.startswith("Listening on ")).removeprefix("Listening on ").strip()
        headers = {"authorization": f"Bearer {TOKEN}"}
        self.client = httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False)

    def counted(self, service: str, metric: str) -> int:
        return int(self.client.get(f"/api/services/{service}").json()["metrics"].get(metric, 0))

    def told(self, *services: str) -> dict[str, object]:
        """All that these services say about themselves."""
        pages = [f"/api/services/{name}{part}" for name in services for part in ("", "/errors")]
        return {page: self.client.get(page).json() for page in pages}

    def change(self, service: str, action: str) -> None:
        assert self.client.post(f"/api/services/{service}/{action}").status_code == 200

    def metric(self, name: str) -> float:
        lines = [line for line in self.client.get("/metrics").text.splitlines() if line.startswith(name)]
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    def usage(self) -> Usage:
        own = psutil.Process(self.process.pid)
        tree = own.memory_info().rss + sum(child.memory_info().rss for child in own.children(recursive=True))
        return Usage(
            own.memory_info().rss / MEBIBYTE,
            tree / MEBIBYTE,
            own.num_threads(),
            own.num_fds(),
            self.metric("ticklake_topics_pool_total_connections"),
            sum(path.is_file() for path in self._temporary.rglob("*")),
        )

    def stop(self) -> tuple[int, str]:
        self.client.close()
        self.process.send_signal(signal.SIGTERM)
        _, rest = self.process.communicate(timeout=180)
        return self.process.returncode, rest


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], Running]]:
    """Runs the starter configuration with a small world and small flushes, in a temporary folder of its own."""
    processes: list[subprocess.Popen[str]] = []
    temporary = tmp_path / "tmp"
    temporary.mkdir()

    def run(database: str) -> Running:
        text = STARTER.read_text(encoding="utf-8").replace('"sqlite:///data/database"', f'"{database}"')
        text = text.replace('master = "local[*]"', 'master = "local[2]", "spark.driver.memory" = "512m"')
        text = text.replace("max_ticks = 2000, shape = [128, 128]", "shape = [64, 64], organisms = 20")
        text = text.replace("batch_timeout_seconds = 5", "batch_timeout_seconds = 0.3")
        text = text.replace(
            'lake = "lake-write:lake" }\n  }\n}', 'lake = "lake-write:lake" }, options { interval_ms = 2 s }\n  }\n}'
        )
        text = text.replace("insert_batch_size = 1000, flush_timeout_ms = 5 s", "flush_timeout_ms = 300 ms")
        file = tmp_path / "node.conf"
        file.write_text(text)
        environment = os.environ | {
            "TICKLAKE_TOKEN": TOKEN,
            "TMPDIR": str(temporary),
            "SPARK_LOCAL_DIRS": str(temporary),
        }
        command = [sys.executable, "-c", "from ticklake.cli import main; main()", "run", str(file), "--http", "0"]
        processes.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment))
        return Running(processes[-1], temporary)

    yield run
    for process in processes:
        for child in psutil.Process(process.pid).children(recursive=True) if process.poll() is None else ():
            child.kill()
        process.kill()
        process.communicate()


def breathe(node: Running, eventually: Callable[..., None]) -> None:
    """The world lives for a moment; then everything that it handed over is indexed."""
    before = node.counted("simulation", "ticks_produced")
    node.change("simulation", "resume")
    eventually(lambda: node.counted("simulation", "ticks_produced") > before)
    node.change("simulation", "pause")
    produced = node.counted("simulation", "ticks_produced")
    try:
        for service in INDEXERS:
            eventually(lambda service=service: node.counted(service, "ticks_processed") >= produced)
    except AssertionError as error:
        raise AssertionError(f"of {produced} ticks: {node.told(*INDEXERS)}") from error


def at_rest(node: Running, eventually: Callable[..., None]) -> Usage:
    """The least of several looks: what a merge has held goes back to the system a little later."""
    looks = []
    for _ in range(8):
        breathe(node, eventually)
        looks.append(node.usage())
    return Usage(*map(min, zip(*looks, strict=True)))


def check_tables(lake: Path, at_least: int) -> None:
    """Every tick from 0 on, each key once."""
    (run,) = lake.iterdir()
    for table, key in (("environment_data", "cell_id"), ("organism_data", "organism_id")):
        rows = DeltaTable(run / table).to_pyarrow_table(columns=["tick_number", key])
        assert rows.group_by(["tick_number", key]).aggregate([]).num_rows == rows.num_rows
        ticks = pc.unique(rows.column("tick_number")).to_pylist()
        assert sorted(ticks) == list(range(len(ticks)))
        assert len(ticks) >= at_least


def test_one_node_runs_everything_on_postgresql(
    start: Callable[[str], Running], postgres_url: str, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    node = start(postgres_url)
    node.change("simulation", "pause")
    for _ in range(2):
        breathe(node, eventually)
    produced = node.counted("simulation", "ticks_produced")
    code, text = node.stop()
    assert code == 0, text
    check_tables(tmp_path / "data" / "lake", produced)


@pytest.mark.parametrize(
    ("database", "seconds"),
    [
        pytest.param("sqlite", MINUTE / 4, marks=pytest.mark.slow),
        pytest.param("sqlite", MINUTE, marks=pytest.mark.slow),
        pytest.param("sqlite", 10 * MINUTE, marks=pytest.mark.long),
        pytest.param("postgres", 10 * MINUTE, marks=pytest.mark.long),
    ],
)
@pytest.mark.timeout(1200)
def test_a_node_that_runs_on_holds_no_more_than_it_did(
    start: Callable[[str], Running],
    database: str,
    seconds: float,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    eventually: Callable[..., None],
) -> None:
    url = "sqlite:///data/database" if database == "sqlite" else str(request.getfixturevalue("postgres_url"))
    node = start(url)
    node.change("simulation", "pause")
    warm = time.monotonic() + seconds / 3
    while time.monotonic() < warm or node.counted("compaction-service", "files_written") < WARM_MERGES:
        breathe(node, eventually)
    before, flushes = at_rest(node, eventually), node.counted("organism-indexer", "flushes")
    end = time.monotonic() + seconds * 2 / 3
    while time.monotonic() < end or node.counted("organism-indexer", "flushes") < flushes + 5:
        breathe(node, eventually)
    after = at_rest(node, eventually)
    # The first flushes and merges fill the allocators; a quarter of a minute is too short to be past that.
    assert after.own < before.own * 1.1 + (32 if seconds >= MINUTE else 128), (before, after)
    assert after.tree < before.tree * 1.2 + 64, (before, after)
    assert after.threads <= before.threads + 4, (before, after)
    assert after.handles <= before.handles + 8, (before, after)
    assert after.connections <= before.connections + 1, (before, after)
    assert after.temporary <= before.temporary + 4, (before, after)
    produced = node.counted("simulation", "ticks_produced")
    code, text = node.stop()
    assert code == 0, text
    check_tables(tmp_path / "data" / "lake", produced)
    # The JVM removes its own folders as the last thing it does.
    eventually(lambda: not any((tmp_path / "tmp").iterdir()))
