"""Signals to a node, to its whole process group, and to everything that it has started: a stop is a clean stop."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from ticklake.cli import INTERRUPTED
from ticklake.cli.pipeline.index import RESUMABLE
from ticklake.indexers.base import IndexerResources
from ticklake.indexers.builtin.metadata import MetadataIndexer
from ticklake.topics import Database

COMMAND = [sys.executable, "-c", "from ticklake.cli import main; main()", "run"]
FLUSHED, BUFFERED, TICKS = 1, 5, 100
Eventually = Callable[..., None]


class Node:
    """A `ticklake run` with one indexer: it has flushed one batch on its JVM and holds five more in its buffer."""

    def __init__(self, maker: Any, folder: Path, eventually: Eventually, *before: str) -> None:
        self.maker, self._eventually = maker, eventually
        maker.metadata()
        MetadataIndexer("metadata-indexer", IndexerResources(maker.storage, maker.lake)).write(maker.run_id)
        file = folder / "node.conf"
        file.write_text(f"""
            resources {{
              db {{ class = Database, url = "{maker.database_url}" }}
              batch-topic {{ class = Topic, database = db }}
              storage {{ class = Storage, path = "{maker.storage.url}" }}
              lake {{ class = Lake, path = "{maker.lake.root}", spark {{ master = "local[1]" }} }}
            }}
            services.environment-indexer {{
              resources.topic = "topic-read:batch-topic?consumerGroup=environment-indexer"
              options {{ run_id = "{maker.run_id}", insert_batch_size = {TICKS}, flush_timeout_ms = 1 h }}
            }}""")
        self._log = folder / "node.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen([*before, *COMMAND, str(file)], stderr=log, start_new_session=True)
        self.database = Database(maker.database_url)
        maker.publish(*maker.batches(FLUSHED, ticks=TICKS))
        eventually(lambda: self.lag() == (0, 0) or self.process.poll() is not None)
        maker.publish(*(maker.batch(start, start + 9) for start in range(TICKS, TICKS + 10 * BUFFERED, 10)))
        eventually(lambda: self.lag() == (BUFFERED, BUFFERED) or self.process.poll() is not None)
        self.family = psutil.Process(self.process.pid).children(recursive=True)
        assert any(child.name() == "java" for child in self.family), self.text

    def lag(self) -> tuple[int, int] | None:
        """Messages that are not acknowledged, and those that are claimed; None while the group has not joined."""
        found = self.database.run(self.maker.run_id).groups.list("batch-topic")
        return (found[0].lag, found[0].claimed) if found else None

    @property
    def text(self) -> str:
        return self._log.read_text()

    @property
    def jvm(self) -> psutil.Process:
        return next(child for child in self.family if child.name() == "java")

    def ended_clean(self) -> None:
        code = self.process.wait(timeout=120)
        assert code == 0, self.text
        assert "Stopped. Everything that was accepted is written." in self.text.splitlines()[-1], self.text
        assert self.lag() == (0, 0)
        expected = self.maker.expected_keys(range(TICKS + 10 * BUFFERED))
        assert self.maker.keys() == sorted(expected)

    def left_nobody(self) -> None:
        self._eventually(lambda: not any(child.is_running() for child in self.family))

    def end(self) -> None:
        self.database.close()
        for child in [self.process, *self.family]:
            try:
                child.kill()
            except psutil.NoSuchProcess:
                continue
        self.process.wait()


@pytest.fixture
def node(maker: Any, tmp_path: Path, eventually: Eventually) -> Iterator[Callable[..., Node]]:
    nodes: list[Node] = []

    def start(*before: str) -> Node:
        nodes.append(Node(maker, tmp_path, eventually, *before))
        return nodes[-1]

    yield start
    for one in nodes:
        one.end()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_whole_group_is_a_clean_stop(node: Callable[..., Node], number: signal.Signals) -> None:
    started = node()
    os.killpg(started.process.pid, number)
    started.ended_clean()
    started.left_nobody()


def test_a_signal_to_everything_that_was_started_is_a_clean_stop(node: Callable[..., Node]) -> None:
    """As systemd does it, whose default is the control group: no session and no process group keeps apart from it."""
    started = node()
    for child in started.family:
        child.send_signal(signal.SIGTERM)
    started.process.send_signal(signal.SIGTERM)
    started.ended_clean()
    started.left_nobody()


@pytest.mark.slow
def test_timeout_is_a_clean_stop(node: Callable[..., Node]) -> None:
    """It signals its child, and right after that the group that the child is in: twice, but that is one wish."""
    started = node("timeout", "3600")
    started.process.send_signal(signal.SIGTERM)
    started.ended_clean()
    started.left_nobody()


def test_no_jvm_outlives_a_node_that_is_killed(node: Callable[..., Node]) -> None:
    started = node()
    started.process.kill()
    started.left_nobody()


@pytest.mark.slow  # without a JVM: `tests/unit/cli/test_interrupt.py`
def test_ctrl_c_twice_ends_a_node_whose_jvm_hangs(node: Callable[..., Node], eventually: Eventually) -> None:
    started = node()
    started.jvm.suspend()
    os.killpg(started.process.pid, signal.SIGINT)
    eventually(lambda: "Stopping" in started.text)

    def ended() -> bool:
        os.killpg(started.process.pid, signal.SIGINT)
        return started.process.poll() is not None

    eventually(ended)
    assert started.process.returncode == 128 + signal.SIGINT
    started.jvm.resume()
    started.left_nobody()


def has_java(pid: int) -> bool:
    try:
        return any(child.name() == "java" for child in psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:  # one of the scripts that start it has just ended
        return False


def slow_java(folder: Path) -> Path:
    """A Java that takes its time, so that whatever is to happen while Spark starts comes in time."""
    java = shutil.which("java")
    assert java is not None
    slow = folder / "jdk" / "bin" / "java"
    slow.parent.mkdir(parents=True)
    slow.write_text(f'#!/bin/sh\nsleep 10\nexec {shlex.quote(java)} "$@"\n')
    slow.chmod(0o755)
    return slow.parents[1]


def test_a_stop_while_spark_starts_indexes_nothing(maker: Any, tmp_path: Path, eventually: Eventually):
    maker.metadata()
    maker.batches(3, ticks=10)
    places = ["--storage", maker.storage.url, "--lake", str(maker.lake.root), "--master", "local[1]"]
    command = [*COMMAND[:-1], "index", maker.run_id, *places]
    log = tmp_path / "index.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
    try:
        eventually(lambda: process.poll() is not None or has_java(process.pid))
        process.terminate()
        code = process.wait(timeout=120)
    finally:
        process.kill()
        process.wait()
    *_, last = log.read_text().splitlines()
    so_far = "So far: 0 of 30 ticks in environment_data, 0 of 30 ticks in organism_data."
    assert (code, last) == (INTERRUPTED, f"{RESUMABLE} {so_far}"), log.read_text()
    assert "Now try" not in log.read_text() and "skipped" not in log.read_text(), "one line, no table"
    assert not maker.folder("environment_data").exists()


@pytest.mark.slow
def test_no_jvm_outlives_a_verify_that_is_interrupted_while_spark_starts(
    maker: Any, tmp_path: Path, eventually: Eventually
) -> None:
    maker.metadata()
    maker.batches(3, ticks=10)
    MetadataIndexer("metadata-indexer", IndexerResources(maker.storage, maker.lake)).write(maker.run_id)
    places = ["--storage", maker.storage.url, "--lake", str(maker.lake.root), "--master", "local[1]"]
    log = tmp_path / "verify.log"
    with log.open("wb") as output:
        command = [*COMMAND[:-1], "verify", maker.run_id, "--deep", *places]
        slow = os.environ | {"JAVA_HOME": str(slow_java(tmp_path))}
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True, env=slow)
    family: list[psutil.Process] = []
    try:
        eventually(lambda: process.poll() is not None or has_java(process.pid))
        family = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=120) == INTERRUPTED, log.read_text()
        eventually(lambda: not any(child.is_running() for child in family), timeout=30)
    finally:
        for child in [process, *family]:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        process.wait()
