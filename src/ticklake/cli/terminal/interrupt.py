"""Ctrl-C and SIGTERM: the first asks for a graceful stop, the second ends the process.

A handler runs between any two steps of the main thread, which may hold a lock that the handler would wait for. So all
that a handler does is to start a thread.
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

# `timeout` signals its child and then the child's group: that is one wish.
APART_SECONDS = 0.5
_ECHO_SECONDS = 1.0
SHOW_CURSOR = "\x1b[?25h"


class StoppedEarly(click.ClickException):
    """A command that was stopped before it had begun anything. Raised inside of `graceful_stop`, it is told last."""

    exit_code = INTERRUPTED

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(self.message, file=file, err=True)


@contextmanager
def graceful_stop() -> Iterator[threading.Event]:
    """Gives an event that the first signal sets; the command waits for it and then stops what it started.

    A command begins with it, before it imports what it needs: that takes seconds, and a signal ends nothing silently.
    """
    stop, told = threading.Event(), threading.Event()
    asked_at: float | None = None

    def on_signal(number: int, _frame: FrameType | None) -> None:
        nonlocal asked_at
        if asked_at is None:
            asked_at = time.monotonic()
            _thread.start_new_thread(ask, ())
        elif time.monotonic() - asked_at >= APART_SECONDS:
            _thread.start_new_thread(end_now, (128 + number,))

    def ask() -> None:
        stop.set()
        click.echo("Stopping; once more stops now.", err=True)
        told.set()

    with handled_by(on_signal):
        try:
            yield stop
        finally:
            if asked_at is not None:
                told.wait(_ECHO_SECONDS)


@contextmanager
def handled_by(handler: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    """Ctrl-C and SIGTERM alike, also if the parent of this process ignores one of them."""
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, handler) for number in signals]
    try:
        yield
    finally:
        for number, previous in zip(signals, before, strict=True):
            signal.signal(number, previous)


def end_now(code: int) -> NoReturn:
    """Ends without waiting for any thread. Nothing is lost: what was not acknowledged is delivered again."""
    if sys.stderr.isatty():
        click.echo(SHOW_CURSOR, err=True, nl=False)
    click.echo("Stopped.", err=True)
    os._exit(code)
