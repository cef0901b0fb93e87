"""`ticklake run` as a process: signals, exit codes, a second instance, HTTP."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from ticklake import Database
from ticklake.storage.files import Storage

MAIN = "from ticklake.cli import main; main()"
Started = Callable[..., "Running"]


class Running:
    """A `ticklake run` that is at work; what it says on stderr is read line by line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said: list[str] = []

    def until(self, beginning: str) -> str:
        assert self.process.stderr
        while line := self.process.stderr.readline():
            self.said.append(line)
            if line.startswith(beginning):
                return line.removeprefix(beginning).strip()
        raise AssertionError(f"it ended and never said {beginning!r}: {self.said}")

    def end(self) -> int:
        _, rest = self.process.communicate(timeout=120)
        self.said += rest.splitlines(keepends=True)
        return self.process.returncode

    @property
    def text(self) -> str:
        return "".join(self.said)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Started]:
    processes: list[subprocess.Popen[str]] = []
    environment = {name: text for name, text in os.environ.items() if not name.startswith("TICKLAKE_")}

    def start(*arguments: str | Path, main: str = MAIN, **variables: str) -> Running:
        command = [sys.executable, "-c", main, *map(str, arguments)]
        processes.append(
            subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment | variables
            )
        )
        return Running(processes[-1])

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def test_sigterm_stops_in_reverse_writes_everything_and_exits_with_0(
    run: Started, write_config: Callable[..., Path], tmp_path: Path, eventually: Callable[..., None]
) -> None:
    node = run("-v", "--log-format", "json", "run", write_config(), "--http", "0")
    url = node.until("Listening on ")
    with httpx.Client(base_url=url, trust_env=False) as client:
        eventually(lambda: client.get("/api/services/persistence-service").json()["metrics"]["ticks_written"] > 10)
        run_id = client.get("/api/node").json()["runs"][0]
    node.process.send_signal(signal.SIGTERM)
    assert node.end() == 0, node.text
    events = [json.loads(line) for line in node.said if line.startswith("{")]
    stopped = [event["service"] for event in events if " stopped after " in event["message"]]
    assert stopped.index("simulation") < stopped.index("persistence-service")
    storage = Storage(tmp_path / "data" / "storage")
    completion = storage.read_completion(run_id)
    assert completion is not None, "the run was closed"
    ticks = [tick for file in storage.every_batch(run_id) for tick in range(file.ticks.start, file.ticks.end + 1)]
    assert ticks == list(range(completion.last_tick + 1)), "and everything that was accepted is written"
    with Database(f"sqlite:///{tmp_path / 'data' / 'database'}") as database:
        assert database.run(run_id, create=False).claims.list() == []


def test_a_second_instance_is_refused_with_the_process_and_host_of_the_first(
    run: Started, write_config: Callable[..., Path]
) -> None:
    config = write_config()
    first = run("run", config)
    first.until("Running ")
    second = run("run", config)
    assert second.end() == 1
    assert f"process {first.process.pid} on " in second.text
    assert len(second.said) == 1, "one line"
    first.process.kill()
    first.process.wait()
    third = run("run", config)
    third.until("Running ")
    third.process.send_signal(signal.SIGINT)
    assert third.end() == 0, "a killed one holds nothing"


@pytest.mark.slow  # in one process: `tests/unit/node/test_instance.py`
def test_instances_that_compete_run_side_by_side(run: Started, write_config: Callable[..., Path]) -> None:
    config = write_config(node="instances = compete")
    nodes = [run("run", config) for _ in range(2)]
    for node in nodes:
        node.until("Running ")
    for node in nodes:
        node.process.send_signal(signal.SIGTERM)
    assert [node.end() for node in nodes] == [0, 0]


def test_a_node_whose_services_have_all_ended_ends_by_itself(run: Started, write_config: Callable[..., Path]) -> None:
    node = run("run", write_config(simulation=", max_ticks = 20"))
    assert node.end() == 0
    assert "Everything that was accepted is written" in node.text


def test_a_stop_that_takes_too_long_is_exit_code_3(run: Started, write_config: Callable[..., Path]) -> None:
    node = run("run", write_config(), "--stop-timeout", "0")
    node.until("Running ")
    node.process.send_signal(signal.SIGTERM)
    assert node.end() == 3
    assert "did not stop within 0 seconds" in node.text


def test_a_service_that_was_given_up_is_exit_code_1(
    run: Started, write_config: Callable[..., Path], tmp_path: Path, eventually: Callable[..., None]
) -> None:
    run_id = "20251014-143025-550e8400"
    (tmp_path / "data" / "storage").mkdir(parents=True)
    (tmp_path / "data" / "storage" / run_id).write_text("a file where the run's directory should be")
    config = write_config("restart { max_restarts = 0 }, stop_timeout = 30", simulation=f', run_id = "{run_id}"')
    node = run("run", config, "--http", "0")
    url = node.until("Listening on ")
    with httpx.Client(base_url=url, trust_env=False) as client:
        eventually(lambda: client.get("/api/services/persistence-service").json()["state"] == "error")
    node.process.send_signal(signal.SIGTERM)
    assert node.end() == 1
    assert "persistence-service failed: " in node.text


def test_http_on_another_address_without_a_token_is_one_line(run: Started, write_config: Callable[..., Path]) -> None:
    node = run("run", write_config(node='http { host = "0.0.0.0", port = 0 }'))
    assert node.end() == 1
    assert len(node.said) == 1
    assert "TICKLAKE_TOKEN" in node.text


def test_without_the_extra_http_is_one_line_that_says_what_to_install(
    run: Started, write_config: Callable[..., Path]
) -> None:
    without = f"import sys; sys.modules['starlette'] = None; sys.modules['uvicorn'] = None; {MAIN}"
    node = run("run", write_config(), "--http", "0", main=without)
    assert node.end() == 1
    assert len(node.said) == 1
    assert "pip install 'ticklake[web]'" in node.text
