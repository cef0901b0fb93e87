"""The account of a topic: every message that was sent, and what each group was given. Pure; read from journals."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

LINES_AT_MOST = 3


@dataclass
class Group:
    """What a group is owed: messages whose send began after `since`, or after a reset to the earliest all there are.

    It was last set anywhere between `reset_begun` and `reset_ended`, and `resets` times in all.
    """

    since: float = -inf
    reset_begun: float = -inf
    reset_ended: float = -inf
    resets: int = 0

    def reset(self, begun: float, ended: float, since: float) -> None:
        self.since, self.reset_begun, self.reset_ended, self.resets = since, begun, ended, self.resets + 1


@dataclass
class Account:
    sent: dict[str, float] = field(default_factory=dict)
    """When the send of each message began that was accepted."""
    undone: set[str] = field(default_factory=set)
    """Rolled back by its sender."""
    unknown: set[str] = field(default_factory=set)
    """Its sender died or got an error: it may be there or not."""
    removed: dict[str, float] = field(default_factory=dict)
    """When retention removed it."""
    groups: dict[str, Group] = field(default_factory=lambda: defaultdict(Group))
    got: dict[str, dict[str, list[tuple[float, int]]]] = field(default_factory=lambda: defaultdict(dict))
    acked: dict[str, dict[str, list[int]]] = field(default_factory=lambda: defaultdict(dict))
    """The versions of the claims by which each message was acknowledged."""

    def read(self, folder: Path) -> Account:
        """Reads all journals anew: `NAME.sent` of publishers, `NAME.GROUP.read` of readers."""
        for known in (self.sent, self.undone, self.unknown, self.got, self.acked):
            known.clear()
        for file in sorted(folder.glob("*.sent")):
            self._add_sends(file.stem, lines(file))
        for file in sorted(folder.glob("*.read")):
            self._add_deliveries(file.stem.partition(".")[2], lines(file))
        return self

    def due(self, group: str) -> set[str]:
        """Every message that the group must have been given."""
        owed = self.groups[group]
        gone = {key for key, when in self.removed.items() if when < owed.reset_begun}
        return {key for key, begun in self.sent.items() if begun >= owed.since} - gone

    def given(self, group: str) -> set[str]:
        """Every message that the group was given since it was last set anywhere."""
        since = self.groups[group].reset_begun
        return {key for key, times in self.got[group].items() if any(when >= since for when, _ in times)}

    def lost(self, group: str) -> set[str]:
        return self.due(group) - self.given(group)

    def owed(self, group: str) -> tuple[int, int]:
        """Between how many and how many messages the lag of the group can be while nothing moves."""
        due, since = self.due(group) - {*self.removed}, self.groups[group].reset_ended
        done = {
            key
            for key, versions in self.acked[group].items()
            if any(when >= since and version in versions for when, version in self.got[group][key])
        }
        return len(due - self.given(group)), len((due | self.unknown) - done)

    def complaints(self) -> Iterator[str]:
        for group in self.groups:
            yield from self._of(group)

    def _of(self, group: str) -> Iterator[str]:
        got = self.got[group]
        lost = self.lost(group)
        if lost:
            yield f"group {group}: {len(lost):,} of {len(self.due(group)):,} were never delivered, {some(lost)}"
        if phantoms := got.keys() - self.sent.keys() - self.unknown:
            yield f"group {group}: {len(phantoms):,} were delivered that nobody had sent, {some(phantoms)}"
        twice = {key for key, times in got.items() if len({version for _, version in times}) < len(times)}
        if twice:
            yield f"group {group}: {len(twice):,} were claimed twice as the same version, {some(twice)}"
        often = {key for key, versions in self.acked[group].items() if len(versions) > 1 + self.groups[group].resets}
        if often:
            yield f"group {group}: {len(often):,} were acknowledged too often, {some(often)}"

    def _add_sends(self, publisher: str, found: Iterable[Any]) -> None:
        began: dict[str, float] = {}
        for when, kind, first, count in found:
            keys = [f"{publisher}:{number}" for number in range(first, first + count)]
            if kind == "try":
                began |= dict.fromkeys(keys, when)
            elif kind == "sent":
                self.sent |= {key: began[key] for key in keys}
            elif kind == "undone":
                self.undone |= {*keys}
        self.unknown |= began.keys() - self.sent.keys() - self.undone

    def _add_deliveries(self, group: str, found: Iterable[Any]) -> None:
        for when, kind, keys in found:
            for key, version in keys:
                if kind == "got":
                    self.got[group].setdefault(key, []).append((when, version))
                else:
                    self.acked[group].setdefault(key, []).append(version)


def lines(file: Path) -> Iterator[Any]:
    """A line without an end was cut off by a kill."""
    for line in file.read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            yield json.loads(line)


def some(keys: Iterable[str]) -> str:
    return f"such as {', '.join(sorted(keys)[:LINES_AT_MOST])}"
