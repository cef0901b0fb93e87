"""One node from one configuration, as a process: simulation, persistence, metadata, both indexers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from ticklake.config.templates import STARTER

TOKEN = "a-token-for-this-test-only"
INDEXERS = ("environment-indexer", "organism-indexer")


class Running:
    """A `ticklake run` with Spark, and its API."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stderr
        lines = iter(process.stderr.readline, "")
        url = next(line for line in lines if line.startswith("Listening on ")).removeprefix("Listening on ").strip()
        headers = {"authorization": f"Bearer {TOKEN}"}
        self.client = httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False)

    def counted(self, service: str, metric: str) -> int:
        return int(self.client.get(f"/api/services/{service}").json()["metrics"].get(metric, 0))

    def change(self, service: str, action: str) -> None:
        assert self.client.post(f"/api/services/{service}/{action}").status_code == 200

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
        return Running(processes[-1])

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
    for service in INDEXERS:
        eventually(lambda service=service: node.counted(service, "ticks_processed") >= produced)


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
