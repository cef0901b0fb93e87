"""Ctrl-C and SIGTERM: the first asks for a graceful stop, the second ends the process."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

import click

SHOW_CURSOR = "\x1b[?25h"


@contextmanager
def graceful_stop() -> Iterator[threading.Event]:
    """Gives an event that the first signal sets; the command waits for it and then stops what it started."""
    stop = threading.Event()

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            end_now(128 + number)
        stop.set()
        click.echo("Stopping; once more stops now.", err=True)

    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, on_signal) for number in signals]
    try:
        yield stop
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)


def end_now(code: int) -> NoReturn:
    """Ends without waiting for any thread. Nothing is lost: what was not acknowledged is delivered again."""
    if sys.stderr.isatty():
        click.echo(SHOW_CURSOR, err=True, nl=False)
    click.echo("Stopped.", err=True)
    os._exit(code)
