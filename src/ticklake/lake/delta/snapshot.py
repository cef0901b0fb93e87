"""The files of a table at one version, updated commit by commit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from ticklake.lake.intervals import Spans
from ticklake.ticks import TickRange

ANY_TICK = TickRange(0, np.iinfo(np.int64).max)
"""The bounds of a file without statistics, which another engine may write: it can hold any tick."""


class LiveFile(NamedTuple):
    """A file of the table as its log describes it."""

    path: str
    size: int
    rows: int | None
    ticks: TickRange
    written: str = ""
    """The path as written in the log. URL encodings can differ, and other engines compare the text."""


class Snapshot:
    """The files of a table. The cost of a change does not depend on their number."""

    def __init__(self, files: Iterable[LiveFile] = ()) -> None:
        self._spans = Spans()
        self._files: dict[str, tuple[int, LiveFile]] = {}
        self._paths: dict[int, str] = {}
        for file in files:
            self.add(file)

    def add(self, file: LiveFile) -> None:
        self.remove(file.path)
        number = self._spans.add(file.ticks)
        self._files[file.path] = number, file
        self._paths[number] = file.path

    def remove(self, path: str) -> None:
        if path in self._files:
            number, _ = self._files.pop(path)
            self._spans.drop(number)
            del self._paths[number]

    def overlapping(self, ticks: TickRange) -> Iterator[LiveFile]:
        for number in self._spans.overlapping(ticks):
            yield self._files[self._paths[number]][1]

    def __contains__(self, path: str) -> bool:
        return path in self._files

    def __iter__(self) -> Iterator[LiveFile]:
        return (file for _, file in self._files.values())

    def __len__(self) -> int:
        return len(self._files)
