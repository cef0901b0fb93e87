"""A node is killed and started again with the same command: its earlier runs are closed, nobody types anything."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ticklake import Database
from ticklake.contracts import BatchInfo, RunCompleted
from ticklake.lives import life_of
from ticklake.storage.files import Storage

TICKLAKE = "from ticklake.cli import main; main()"
CONFIG = """
node { name = NAME, directory = NAME-data }
resources {
  d { class = Database, url = "URL" }
  batches { class = Topic, database = d }, metadata { class = Topic, database = d }
  ends { class = Topic, database = d }
  s { class = Storage, path = storage }, q { class = Queue, max_ticks = 50 }
}
services {
  simulation { options { shape = [16, 16], organisms = 5 } }
  persistence-service {
    resources { batch-out = "topic-write:batches" }
    options { max_batch_size = 10, batch_timeout_seconds = 1 }
  }
  metadata-persistence-service { resources { metadata-out = "topic-write:metadata" } }
  completion-service { resources { run-out = "topic-write:ends" } }
}
"""
pytestmark = pytest.mark.chaos


class Nodes:
    """Nodes without indexers on one storage and one database."""

    def __init__(self, root: Path, url: str, eventually: Callable[..., None]) -> None:
        self.root, self.url, self.eventually = root, url, eventually
        self.storage = Storage(root / "storage")
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, name: str = "one", fault: str = "") -> tuple[subprocess.Popen[bytes], str]:
        """Starts a node and waits until its run has files."""
        config = self.root / f"{name}.conf"
        config.write_text(CONFIG.replace("NAME", name).replace("URL", self.url))
        before = set(self.storage.runs())
        command = [sys.executable, "-c", TICKLAKE, "run", str(config)]
        process = subprocess.Popen(command, env=os.environ | {"TICKLAKE_FAULT": fault}, stdout=subprocess.DEVNULL)
        self.processes.append(process)
        self.eventually(lambda: any(self.files(run) for run in set(self.storage.runs()) - before))
        (run_id,) = set(self.storage.runs()) - before
        return process, run_id

    def files(self, run_id: str) -> int:
        return len(self.storage.batches(run_id).files)

    def life(self, run_id: str) -> str:
        return str(life_of(self.storage.read_completion(run_id)).state)

    def end(self, process: subprocess.Popen[bytes], sent: signal.Signals) -> int:
        process.send_signal(sent)
        return process.wait(60)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def nodes(request: pytest.FixtureRequest, tmp_path: Path, eventually: Callable[..., None]) -> Iterator[Nodes]:
    sqlite = request.param == "sqlite"
    url = f"sqlite:///{tmp_path / 'db'}" if sqlite else str(request.getfixturevalue("postgres_url"))
    made = Nodes(tmp_path, url, eventually)
    yield made
    for process in made.processes:
        process.kill()
        process.wait()


def test_a_restart_closes_the_runs_of_this_node_and_no_other(nodes: Nodes, eventually: Callable[..., None]) -> None:
    other, others_run = nodes.start("two")
    earlier = []
    # The second one dies with a file that has no message.
    for fault in ("", "persistence.publish:kill:3"):
        process, run_id = nodes.start(fault=fault)
        earlier.append(run_id)
        assert (process.wait(60) if fault else nodes.end(process, signal.SIGKILL)) == -signal.SIGKILL
        assert nodes.life(run_id) == "running"
    last, last_run = nodes.start()
    eventually(lambda: [nodes.life(run_id) for run_id in earlier] == ["abandoned"] * 2)
    assert [nodes.life(run_id) for run_id in (others_run, last_run)] == ["running"] * 2
    for process in (last, other):
        assert nodes.end(process, signal.SIGTERM) == 0
    assert [nodes.life(run_id) for run_id in (others_run, last_run)] == ["ended"] * 2
    for run_id in earlier:
        check_closed_run(nodes, run_id)


def check_closed_run(nodes: Nodes, run_id: str) -> None:
    """Each file has a message, the end is said once, and nothing is missing up to it."""
    files = [file.ticks for file in nodes.storage.every_batch(run_id)]
    end = nodes.storage.read_completion(run_id)
    assert end is not None
    assert (end.last_tick, end.abandoned_by, list(end.never_written)) == (files[-1].end, "restart", [])
    with Database(nodes.url) as database:
        run = database.run(run_id)
        infos = [message.opened().payload for message in run.browse("batches", limit=100_000)]  # type: ignore[union-attr]
        ends = [message.opened().payload for message in run.browse("ends")]  # type: ignore[union-attr]
    assert sorted((one.tick_start, one.tick_end) for one in infos if isinstance(one, BatchInfo)) == sorted(files)
    assert [one for one in ends if isinstance(one, RunCompleted)] == [end]


@pytest.mark.slow
def test_a_run_that_the_directory_of_the_node_does_not_name_is_left_alone(nodes: Nodes, tmp_path: Path) -> None:
    process, run_id = nodes.start()
    nodes.end(process, signal.SIGKILL)
    listed = json.loads((tmp_path / "one-data" / "one.runs").read_text())
    assert [one["run"] for one in listed["runs"]] == [run_id]
    (tmp_path / "one-data" / "one.runs").unlink()
    process, _ = nodes.start()
    assert nodes.end(process, signal.SIGTERM) == 0
    assert nodes.life(run_id) == "running"
