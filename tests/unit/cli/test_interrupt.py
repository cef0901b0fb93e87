"""Ctrl-C: once stops gracefully, twice stops now."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

# Stands for a command: it waits for the signal, says that it is stopping, and takes for ever about it if asked to.
COMMAND = """
import sys, threading
from ticklake.cli._interrupt import graceful_stop
with graceful_stop() as stop:
    print("running", flush=True)
    stop.wait()
    print("stopping", flush=True)
    if "stuck" in sys.argv:
        threading.Event().wait()
print("stopped", flush=True)
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
    assert err == "Stopping; once more stops now.\n"


def test_the_second_signal_ends_a_command_that_is_stuck(started):
    process = started("stuck")
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "stopping\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert err.endswith("Stopped.\n")


def test_afterwards_signals_are_what_they_were_before():
    from ticklake.cli._interrupt import graceful_stop

    before = signal.getsignal(signal.SIGTERM)
    with graceful_stop() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(60)
    assert signal.getsignal(signal.SIGTERM) is before
