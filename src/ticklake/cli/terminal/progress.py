"""Progress of long work: bars in a terminal, a line every few seconds otherwise."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self

import click

from ticklake.cli.terminal.output import is_quiet

if TYPE_CHECKING:
    from rich.progress import TaskID

LINE_SECONDS = 10.0
_RATE_SECONDS = 30.0


class Rate:
    """The rate at which a number grows, over the last half minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: deque[tuple[float, int]] = deque()

    def update(self, amount: int) -> float:
        """Records the current amount and returns the rate per second."""
        now = self._clock()
        self._seen.append((now, amount))
        while len(self._seen) > 2 and self._seen[1][0] <= now - _RATE_SECONDS:
            self._seen.popleft()
        when, before = self._seen[0]
        return (amount - before) / (now - when) if now > when else 0.0


def time_left(done: int, total: int, per_second: float) -> str:
    """Formats the remaining time, `0:01:30 left`; an empty text if it is unknown."""
    if done >= total or per_second <= 0:
        return ""
    return f"{timedelta(seconds=round((total - done) / per_second))} left"


class Bars:
    """One bar per name. With `quiet` or --quiet, nothing is printed."""

    def __init__(self, quiet: bool = False) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            SpinnerColumn,
            TextColumn,
        )

        quiet = quiet or is_quiet()
        console = Console(stderr=True)
        self._lines = not quiet and (not console.is_terminal or console.is_dumb_terminal)
        self._printed: dict[str, tuple[float, int]] = {}
        self._rates: dict[str, tuple[Rate, Rate]] = {}
        self._tasks: dict[str, TaskID] = {}
        self._rich = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}", style="dim"),
            console=console,
            disable=quiet or self._lines,
        )

    def update(self, name: str, done: int, total: int, note: str = "", rows: int | None = None) -> None:
        """Shows the progress; with `rows`, also the rows per second and the remaining time."""
        if name not in self._tasks:
            self._tasks[name] = self._rich.add_task(name, total=None, note="")
        if rows is not None:
            note = self._rate_text(name, done, total, rows)
        self._rich.update(self._tasks[name], completed=done, total=total or None, note=note)
        if self._lines:
            self._print_line(name, done, total, note)

    def _rate_text(self, name: str, done: int, total: int, rows: int) -> str:
        ticks_rate, rows_rate = self._rates.setdefault(name, (Rate(), Rate()))
        left = time_left(done, total, ticks_rate.update(done))
        return ", ".join(part for part in (f"{rows:,} rows", f"{rows_rate.update(rows):,.0f} rows/s", left) if part)

    def _print_line(self, name: str, done: int, total: int, note: str) -> None:
        when, printed = self._printed.get(name, (float("-inf"), -1))
        if done != printed and (time.monotonic() - when > LINE_SECONDS or done == total):
            self._printed[name] = (time.monotonic(), done)
            click.echo(f"{name}: {done:,} of {total:,}{', ' if note else ''}{note}", err=True)

    def __enter__(self) -> Self:
        self._rich.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._rich.stop()
