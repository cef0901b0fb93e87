"""Processes that a scene starts, torments and ends: each is forked from one that has imported everything."""

from __future__ import annotations

import logging
import multiprocessing
import os
import re
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from chaos_child import die_with_parent

_EXCEPTION = re.compile(r"^(?:ticklake\.(?:\w+\.)*errors\.)?([A-Z]\w+(?::.*)?)$", re.MULTILINE)
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    ["ticklake.completeness", "ticklake.consumer", "ticklake.simulation", "ticklake.services.reconciliation"]
)


class Crew:
    """Named processes. All of them write to `root/log`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.processes: dict[str, ForkServerProcess] = {}
        root.mkdir(parents=True, exist_ok=True)
        (root / "log").touch()

    def start(self, name: str, act: Callable[..., object], *arguments: Any) -> None:
        self.processes[name] = FORKS.Process(target=enter, args=[self.root, act, *arguments])
        self.processes[name].start()

    def alive(self, name: str) -> bool:
        return self.processes[name].exitcode is None

    def handles(self, name: str, what: signal.Signals) -> bool:
        """Whether the process has set a handler for the signal, or has ended."""
        with suppress(FileNotFoundError, ProcessLookupError):
            lines = Path(f"/proc/{self.processes[name].pid}/status").read_text().splitlines()
            caught = next((line for line in lines if line.startswith("SigCgt:")), "SigCgt: 0")
            return not self.alive(name) or bool(int(caught.split()[1], 16) >> (what - 1) & 1)
        return True

    def send(self, name: str, what: signal.Signals) -> None:
        """Does nothing if the process has ended: its number may belong to another one by now."""
        process = self.processes[name]
        if process.pid and process.exitcode is None:
            with suppress(ProcessLookupError):
                os.kill(process.pid, what)

    def end(self, name: str, how: signal.Signals = signal.SIGKILL) -> int | None:
        self.send(name, how)
        process = self.processes.pop(name)
        process.join()
        return process.exitcode

    def freeze(self, name: str, at_most: float, until: Callable[[], bool] = lambda: False) -> None:
        """Stops a process until the condition holds. A lease ends by time alone: then there is only `at_most`."""
        self.send(name, signal.SIGSTOP)
        wait(at_most, until)
        self.send(name, signal.SIGCONT)

    def join(self, name: str, seconds: float) -> bool:
        """Waits until the process has ended. False if it still runs."""
        self.processes[name].join(seconds)
        return not self.alive(name)

    def close(self) -> None:
        for name in list(self.processes):
            self.end(name)

    def last_error(self) -> str:
        return last_error(self.root / "log")


def wait(seconds: float, condition: Callable[[], bool], every: float = 0.01) -> bool:
    """Waits until the condition holds. False if it does not within this time."""
    deadline = time.monotonic() + seconds
    while not (met := condition()) and time.monotonic() < deadline:
        time.sleep(every)
    return met


def last_error(log: Path) -> str:
    """The last line of a log that is an exception's, for a report."""
    found = _EXCEPTION.findall(log.read_text(errors="replace"))
    return found[-1][:200] if found else "no error was logged"


def enter(root: Path, act: Callable[..., object], *arguments: Any) -> None:
    """What every process does first. It dies with the driver, and obeys the clock of the scene."""
    die_with_parent()
    log = os.open(root / "log", os.O_WRONLY | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    logging.basicConfig(format="%(asctime)s %(process)d %(message)s", level=logging.WARNING)
    follow_clock(root / "clock")
    act(*arguments)


def follow_clock(wrong_by: Path) -> None:
    """The time of day is wrong by as many seconds as this file says, once it exists."""
    right, right_ns = time.time, time.time_ns

    def seconds() -> int:
        try:
            return int(wrong_by.read_text() or 0)
        except FileNotFoundError:
            return 0

    time.time = lambda: right() + seconds()
    time.time_ns = lambda: right_ns() + seconds() * 10**9
