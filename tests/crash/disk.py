"""A disk, and what is left of it after a power cut: pure, so that it can be tested by itself.

A file's data is safe once the file was synced after the write; a name is safe once its folder was synced after it came
or went. Everything else may be there or not, in any order, a write in blocks. That is less than any file system in use
promises (ALICE and CrashMonkey assume as much): what survives here survives there.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = 0
BLOCKS = (512, 4096)


class Write(NamedTuple):
    inode: int
    offset: int
    data: bytes


class Resize(NamedTuple):
    inode: int
    size: int


class Naming(NamedTuple):
    """Names in folders that come (an inode) or go (None) at once, such as the two of a rename."""

    changes: tuple[tuple[int, str, int | None], ...]


class Folder(NamedTuple):
    """A folder is made; its name is a `Naming` of its own."""

    inode: int


class Sync(NamedTuple):
    """Returned here. It covers what had happened before event number `begun`."""

    inode: int
    begun: int


class Mark(NamedTuple):
    """Whoever wrote this had been told that something is safe."""

    text: str


Event = Write | Resize | Naming | Folder | Sync | Mark


class Cut(NamedTuple):
    """After so many events the power goes; `style` says what becomes of what was not synced.

    `strict`: all of it is lost. `prefix`: the first of it stays, per file and folder, the last write in part.
    `scattered`: each block and each name stays or not.
    """

    at: int
    style: str
    seed: int = 0


STYLES = ("strict", "prefix", "scattered")


def image(events: Sequence[Event], cut: Cut) -> tuple[dict[int, dict[str, int]], dict[int, bytes]]:
    """The folders and the files, by inode, that are on the disk after the cut."""
    safe = _synced(events[: cut.at])
    rng = random.Random(cut.seed)
    folders: dict[int, dict[str, int]] = {ROOT: {}}
    files: defaultdict[int, bytearray] = defaultdict(bytearray)
    stays = {"strict": _Strict, "prefix": _Prefix, "scattered": _Scattered}[cut.style](events[: cut.at], safe, rng)
    for number, event in enumerate(events[: cut.at]):
        if isinstance(event, Folder):
            folders.setdefault(event.inode, {})
        elif isinstance(event, Naming):
            for place, name, inode in event.changes:
                if number < safe[place] or stays.named(number, place):
                    _name(folders.setdefault(place, {}), name, inode)
        elif isinstance(event, Write | Resize):
            for part in [event] if number < safe[event.inode] else stays.parts(number, event):
                _apply(files[part.inode], part)
    return folders, {inode: bytes(content) for inode, content in files.items()}


def build(root: Path, folders: Mapping[int, Mapping[str, int]], files: Mapping[int, bytes]) -> None:
    """Puts an image into a directory. A file with two names is one file."""
    root.mkdir(parents=True)
    written: dict[int, Path] = {}
    waiting = [(ROOT, root)]
    while waiting:
        inode, path = waiting.pop()
        for name, below in folders[inode].items():
            target = path / name
            if below in folders:
                target.mkdir()
                waiting.append((below, target))
            elif below in written:
                os.link(written[below], target)
            else:
                target.write_bytes(files.get(below, b""))
                written[below] = target


def marks(events: Sequence[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, Mark)]


def _synced(events: Sequence[Event]) -> defaultdict[int, int]:
    """For each inode the number of the event before which everything of it is safe."""
    safe: defaultdict[int, int] = defaultdict(int)
    for event in events:
        if isinstance(event, Sync):
            safe[event.inode] = max(safe[event.inode], event.begun)
    return safe


def _name(folder: dict[str, int], name: str, inode: int | None) -> None:
    if inode is None:
        folder.pop(name, None)
    else:
        folder[name] = inode


def _apply(content: bytearray, event: Write | Resize) -> None:
    if isinstance(event, Resize):
        del content[event.size :]
        content.extend(bytes(event.size - len(content)))
        return
    content.extend(bytes(max(0, event.offset - len(content))))
    content[event.offset : event.offset + len(event.data)] = event.data


class _Strict:
    """Nothing that was not synced is there."""

    def __init__(self, events: Sequence[Event], safe: Mapping[int, int], rng: random.Random) -> None:
        self._events, self._safe, self._rng = events, safe, rng

    def named(self, number: int, place: int) -> bool:
        return False

    def parts(self, number: int, event: Write | Resize) -> Iterator[Write | Resize]:
        return iter(())


class _Prefix(_Strict):
    """For each file and each folder, what happened up to some moment."""

    def __init__(self, events: Sequence[Event], safe: Mapping[int, int], rng: random.Random) -> None:
        super().__init__(events, safe, rng)
        self._until: dict[int, int] = {}

    def named(self, number: int, place: int) -> bool:
        return number <= self._moment(place)

    def parts(self, number: int, event: Write | Resize) -> Iterator[Write | Resize]:
        until = self._moment(event.inode)
        if number < until:
            yield event
        elif number == until and isinstance(event, Write):
            blocks = list(_blocks(event, self._rng.choice(BLOCKS)))
            yield from blocks[: self._rng.randint(0, len(blocks))]

    def _moment(self, inode: int) -> int:
        if inode not in self._until:
            open_ = [
                number
                for number, event in enumerate(self._events)
                if number >= self._safe[inode] and inode in _touched(event)
            ]
            self._until[inode] = self._rng.choice([*open_, len(self._events)])
        return self._until[inode]


class _Scattered(_Strict):
    """The disk has done some of it, in an order of its own."""

    def named(self, number: int, place: int) -> bool:
        return self._rng.random() < 0.5

    def parts(self, number: int, event: Write | Resize) -> Iterator[Write | Resize]:
        pieces = _blocks(event, self._rng.choice(BLOCKS)) if isinstance(event, Write) else [event]
        for piece in pieces:
            if self._rng.random() < 0.5:
                yield piece


def _touched(event: Event) -> set[int]:
    if isinstance(event, Write | Resize):
        return {event.inode}
    return {place for place, _, _ in event.changes} if isinstance(event, Naming) else set()


def _blocks(event: Write, size: int) -> Iterator[Write]:
    """A write as the disk does it, cut where its blocks begin."""
    start, end = event.offset, event.offset + len(event.data)
    while start < end:
        stop = min(end, (start // size + 1) * size)
        yield Write(event.inode, start, event.data[start - event.offset : stop - event.offset])
        start = stop
