"""Ctrl-C: once stops gracefully, twice stops now."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ticklake.events import IndexerQueue

RUN_ID = "20251014-143025-550e8400"

# Stands for a command: it waits for the signal, says that it is stopping, and takes for ever about it if asked to.
COMMAND = """
import os, signal, sys, threading
from ticklake.cli.terminal.interrupt import graceful_stop
with graceful_stop() as stop:
    print("running", flush=True)
    if "at once" in sys.argv:
        both = {signal.SIGTERM, signal.SIGINT}
        signal.pthread_sigmask(signal.SIG_BLOCK, both)
        for number in both:
            os.kill(os.getpid(), number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, both)
    stop.wait()
    print("stopping", flush=True)
    if "stuck" in sys.argv:
        threading.Event().wait()
print("stopped", flush=True)
"""

# Signals itself after the Nth step inside of a wait for the event, for each N.
EVERY_STEP = """
import signal, sys, threading
from ticklake.cli.terminal.interrupt import graceful_stop

def signalled(after):
    steps = 0
    def trace(frame, event, _):
        nonlocal steps
        if frame.f_code.co_filename != threading.__file__:
            return None
        frame.f_trace_opcodes = True
        steps += event == "opcode"
        if steps == after:
            steps += 1
            signal.raise_signal(signal.SIGTERM)
        return trace
    with graceful_stop() as stop:
        sys.settrace(trace)
        stop.wait(0.001)
        sys.settrace(None)
        return steps > after and stop.wait(60)

count = 1
while signalled(count):
    count += 1
print(count)
"""


@pytest.fixture
def started() -> Iterator:
    processes: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        processes.append(process)
        assert process.stdout and process.stdout.readline() == "running\n"
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_to_stop(started, number):
    process = started()
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "stopping\nstopped\n")
    assert err == "Stopping. Press Ctrl-C again to stop at once.\n"


def test_the_second_signal_ends_a_command_that_is_stuck(started, eventually):
    process = started("stuck")
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "stopping\n"

    def ended() -> bool:
        process.send_signal(signal.SIGINT)
        return process.poll() is not None

    eventually(ended)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert err.endswith("Stopped.\n")


def test_two_signals_at_once_are_one_wish(started):
    process = started("at once")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "stopping\nstopped\n")
    assert err == "Stopping. Press Ctrl-C again to stop at once.\n"


def test_a_signal_at_any_step_of_the_wait_is_heard():
    """The handler must not wait for a lock that the main thread holds while it runs."""
    command = [sys.executable, "-c", EVERY_STEP]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert int(done.stdout) > 20


# Signals itself when the command begins to import what takes its time.
EARLY = """
import os, sys

class Finder:
    def find_spec(self, name, path, target=None):
        if name == os.environ["HEAVY"]:
            os.kill(os.getpid(), int(os.environ["SIGNAL"]))

sys.meta_path.insert(0, Finder())
from ticklake.cli import main
main()
"""
STARTER = """
resources {
  d { class = Database, url = "sqlite:///data/database" }, t { class = Topic, database = d }
  s { class = Storage, path = data/storage }, q { class = Queue }
}
services { simulation { }, persistence-service { resources { out = "topic-write:t" } } }
"""


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("words", "heavy", "code", "last"),
    [
        (["run", "node.conf"], "ticklake.node.node", 0, "Stopped. Everything that was accepted is written."),
        (["demo", "--directory", "demo"], "ticklake.node.node", 130, "Stopped before any tick was in the tables."),
        (
            ["index", RUN_ID, "--storage", "storage", "--lake", "lake"],
            "ticklake.indexers.finished_run",
            130,
            "Stopped before the end. The same command continues from here.",
        ),
        (
            ["index-events", RUN_ID, "--events", "events.sqlite", "--lake", "lake"],
            "ticklake.indexers.events",
            130,
            "Stopped before the end. The same command continues from here.",
        ),
    ],
)
def test_a_signal_while_a_command_is_still_being_loaded_ends_it_as_any_other_time(
    maker: Any, tmp_path: Path, words: list[str], heavy: str, code: int, last: str, number: signal.Signals
) -> None:
    (tmp_path / "node.conf").write_text(STARTER)
    maker.metadata()
    maker.batch(0, 9)
    with IndexerQueue(tmp_path / "events.sqlite"):
        pass
    before = sorted(tmp_path.rglob("*"))
    environment = os.environ | {"HEAVY": heavy, "SIGNAL": str(int(number))}
    command = [sys.executable, "-c", EARLY, *words]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    lines = done.stderr.splitlines()
    assert (done.returncode, lines[0], lines[-1]) == (code, "Stopping. Press Ctrl-C again to stop at once.", last), (
        done.stderr
    )
    assert sorted(tmp_path.rglob("*")) == before, "nothing was started"


STARTING = """
import os, signal, sys
from ticklake.cli import main
from ticklake.node.node import Node

Node.warm_up = lambda node: os.kill(os.getpid(), signal.SIGTERM)
main()
"""


def test_a_signal_while_the_demo_starts_spark_is_no_error(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STARTING, "demo", "--directory", str(tmp_path / "demo")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (130, "Stopped before any tick was in the tables.")


def test_afterwards_signals_are_what_they_were_before():
    from ticklake.cli.terminal.interrupt import graceful_stop

    before = signal.getsignal(signal.SIGTERM)
    with graceful_stop() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(60)
    assert signal.getsignal(signal.SIGTERM) is before
