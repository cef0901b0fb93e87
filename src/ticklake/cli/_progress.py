"""Progress of long work: bars in a terminal, a line every so often without one."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

import click

if TYPE_CHECKING:
    from rich.progress import TaskID

LINE_SECONDS = 10.0


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
            TimeRemainingColumn,
        )

        console = Console(stderr=True)
        self._lines = not quiet and not console.is_terminal
        self._said: dict[str, tuple[float, int]] = {}
        self._tasks: dict[str, TaskID] = {}
        self._rich = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}", style="dim"),
            TimeRemainingColumn(),
            console=console,
            disable=quiet or self._lines,
        )

    def update(self, name: str, done: int, total: int, note: str = "") -> None:
        if name not in self._tasks:
            self._tasks[name] = self._rich.add_task(name, total=None, note="")
        self._rich.update(self._tasks[name], completed=done, total=total or None, note=note)
        if self._lines:
            self._say(name, done, total, note)

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
