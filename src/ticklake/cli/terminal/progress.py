"""Progress of long work: bars in a terminal, a line every so often without one."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self

import click

if TYPE_CHECKING:
    from rich.progress import TaskID

LINE_SECONDS = 10.0
_PACE_SECONDS = 30.0


class Pace:
    """How fast something grows, over the last half minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: deque[tuple[float, int]] = deque()

    def rate(self, amount: int) -> float:
        """Per second, now that there is so much of it."""
        now = self._clock()
        self._seen.append((now, amount))
        while len(self._seen) > 2 and self._seen[1][0] <= now - _PACE_SECONDS:
            self._seen.popleft()
        when, was = self._seen[0]
        return (amount - was) / (now - when) if now > when else 0.0


def time_left(done: int, total: int, a_second: float) -> str:
    """`0:01:30 left`; nothing where nobody can tell."""
    if done >= total or a_second <= 0:
        return ""
    return f"{timedelta(seconds=round((total - done) / a_second))} left"


class Bars:
    """One bar per name. Quiet, it says nothing."""

    def __init__(self, quiet: bool = False) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            SpinnerColumn,
            TextColumn,
        )

        console = Console(stderr=True)
        self._lines = not quiet and (not console.is_terminal or console.is_dumb_terminal)
        self._said: dict[str, tuple[float, int]] = {}
        self._paces: dict[str, tuple[Pace, Pace]] = {}
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
        """Shows how far it is; with `rows`, also how many a second, and how long the rest will take."""
        if name not in self._tasks:
            self._tasks[name] = self._rich.add_task(name, total=None, note="")
        if rows is not None:
            note = self._paced(name, done, total, rows)
        self._rich.update(self._tasks[name], completed=done, total=total or None, note=note)
        if self._lines:
            self._say(name, done, total, note)

    def _paced(self, name: str, done: int, total: int, rows: int) -> str:
        ticks_pace, rows_pace = self._paces.setdefault(name, (Pace(), Pace()))
        left = time_left(done, total, ticks_pace.rate(done))
        return ", ".join(part for part in (f"{rows:,} rows", f"{rows_pace.rate(rows):,.0f} rows/s", left) if part)

    def _say(self, name: str, done: int, total: int, note: str) -> None:
        when, what = self._said.get(name, (float("-inf"), -1))
        if done != what and (time.monotonic() - when > LINE_SECONDS or done == total):
            self._said[name] = (time.monotonic(), done)
            click.echo(f"{name}: {done:,} of {total:,}{', ' if note else ''}{note}", err=True)

    def __enter__(self) -> Self:
        self._rich.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._rich.stop()
