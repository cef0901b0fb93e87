"""Ctrl-C and SIGTERM: the first signal requests a graceful stop, the second ends the process.

A signal handler interrupts the main thread, which may hold a lock that the handler would wait for. So a handler only
starts a thread.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import IO, Any, NoReturn

import click

from ticklake.cli import INTERRUPTED

# `timeout` signals its child and then the child's process group. The two signals count as one.
SECOND_SIGNAL_AFTER_SECONDS = 0.5
_ECHO_SECONDS = 1.0
SHOW_CURSOR = "\x1b[?25h"


class StoppedEarly(click.ClickException):
    """A command was stopped before it started anything. Raised inside `graceful_stop`, it is printed last."""

    exit_code = INTERRUPTED

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(self.message, file=file, err=True)


@contextmanager
def graceful_stop() -> Iterator[threading.Event]:
    """Yields an event that the first signal sets. The command waits for it and then stops what it started.

    A command enters it before its imports, which take seconds, so that a signal during them is handled too.
    """
    stop, announced = threading.Event(), threading.Event()
    asked_at: float | None = None

    def on_signal(number: int, _frame: FrameType | None) -> None:
        nonlocal asked_at
        if asked_at is None:
            asked_at = time.monotonic()
            _thread.start_new_thread(ask, ())
        elif time.monotonic() - asked_at >= SECOND_SIGNAL_AFTER_SECONDS:
            _thread.start_new_thread(end_now, (128 + number,))

    def ask() -> None:
        stop.set()
        click.echo("Stopping. Press Ctrl-C again to stop at once.", err=True)
        announced.set()

    with handled_by(on_signal):
        try:
            yield stop
        finally:
            if asked_at is not None:
                announced.wait(_ECHO_SECONDS)


@contextmanager
def handled_by(handler: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    """Handles Ctrl-C and SIGTERM, even if the parent process ignores them."""
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, handler) for number in signals]
    try:
        yield
    finally:
        for number, previous in zip(signals, before, strict=True):
            signal.signal(number, previous)


def end_now(code: int) -> NoReturn:
    """Ends the process without waiting for threads. Nothing is lost: unacknowledged messages are delivered again."""
    if sys.stderr.isatty():
        click.echo(SHOW_CURSOR, err=True, nl=False)
    click.echo("Stopped.", err=True)
    os._exit(code)
