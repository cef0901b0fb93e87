"""The account of a topic: every message that was sent, and what each group was given. Pure; read from journals."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

LINES_AT_MOST = 3


class Deed(NamedTuple):
    """A claim or an ack of a message: it was asked for at `begun` and answered before `ended`."""

    begun: float
    ended: float
    version: int


class Crash(NamedTuple):
    """A server died between `begun` and `ended`. Of what was answered before `synced` it has forgotten nothing.

    Claims and acks are not synced, so the last ones before a crash may be undone: the message is delivered again, maybe
    as the same version, and acknowledged again. A send is synced, and with it all that was committed before it.
    """

    synced: float
    begun: float
    ended: float

    def may_have_undone(self, deed: Deed) -> bool:
        return deed.ended > self.synced and deed.begun < self.ended


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
    downtimes: list[tuple[float, float]] = field(default_factory=list)
    """When the server died, and when it was there again."""
    synced: list[tuple[float, float]] = field(default_factory=list)
    """When each send that was accepted began and was answered."""
    got: dict[str, dict[str, list[Deed]]] = field(default_factory=lambda: defaultdict(dict))
    acked: dict[str, dict[str, list[Deed]]] = field(default_factory=lambda: defaultdict(dict))
    cut_off: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """What a reader had got when its journal ends: it may have acknowledged that."""

    def read(self, folder: Path) -> Account:
        """Reads all journals anew: `NAME.sent` of publishers, `NAME.GROUP.read` of readers."""
        for known in (self.sent, self.undone, self.unknown, self.synced, self.got, self.acked, self.cut_off):
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
        return {key for key, claims in self.got[group].items() if any(claim.ended >= since for claim in claims)}

    def lost(self, group: str) -> set[str]:
        return self.due(group) - self.given(group)

    def unfinished(self, group: str) -> set[str]:
        """Every message that the group was given, and that nobody in it can have acknowledged."""
        since = self.groups[group].reset_begun
        done = {key for key, acks in self.acked[group].items() if any(ack.ended >= since for ack in acks)}
        return (self.due(group) & self.given(group)) - done - self.cut_off[group]

    def crashes(self) -> list[Crash]:
        return [
            Crash(max((began for began, answered in self.synced if answered <= begun), default=-inf), begun, ended)
            for begun, ended in self.downtimes
        ]

    def owed(self, group: str) -> tuple[int, int]:
        """Between how many and how many messages the lag of the group can be while nothing moves."""
        due, since = self.due(group) - {*self.removed}, self.groups[group].reset_ended
        crashes = self.crashes()
        done = set()
        for key, acks in self.acked[group].items():
            kept = {ack.version for ack in acks if not any(crash.may_have_undone(ack) for crash in crashes)}
            if any(claim.ended >= since and claim.version in kept for claim in self.got[group][key]):
                done.add(key)
        return len(due - self.given(group)), len((due | self.unknown) - done)

    def complaints(self) -> Iterator[str]:
        for group in self.groups:
            yield from self._of(group)

    def _of(self, group: str) -> Iterator[str]:
        got, crashes = self.got[group], self.crashes()
        lost = self.lost(group)
        if lost:
            yield f"group {group}: {len(lost):,} of {len(self.due(group)):,} were never delivered, {some(lost)}"
        if phantoms := got.keys() - self.sent.keys() - self.unknown:
            yield f"group {group}: {len(phantoms):,} were delivered that nobody had sent, {some(phantoms)}"
        twice = {
            key for key, claims in got.items() if any(_too_often(same, 1, crashes) for same in _by_version(claims))
        }
        if twice:
            yield f"group {group}: {len(twice):,} were claimed twice as the same version, {some(twice)}"
        allowed = 1 + self.groups[group].resets
        often = {key for key, acks in self.acked[group].items() if _too_often(acks, allowed, crashes)}
        if often:
            yield f"group {group}: {len(often):,} were acknowledged too often, {some(often)}"
        if unfinished := self.unfinished(group):
            yield f"group {group}: {len(unfinished):,} were never acknowledged, {some(unfinished)}"

    def _add_sends(self, publisher: str, found: Iterable[Any]) -> None:
        began: dict[str, float] = {}
        for when, kind, first, count in found:
            keys = [f"{publisher}:{number}" for number in range(first, first + count)]
            if kind == "try":
                began |= dict.fromkeys(keys, when)
            elif kind == "sent":
                self.sent |= {key: began[key] for key in keys}
                self.synced.append((began[keys[0]], when))
            elif kind == "undone":
                self.undone |= {*keys}
        self.unknown |= began.keys() - self.sent.keys() - self.undone

    def _add_deliveries(self, group: str, found: Iterable[Any]) -> None:
        unsure: set[str] = set()
        for ended, kind, begun, claims in found:
            deeds = self.got[group] if kind == "got" else self.acked[group]
            for key, version in claims:
                deeds.setdefault(key, []).append(Deed(begun, ended, version))
            unsure = {key for key, _ in claims} if kind == "got" else set()
        self.cut_off[group] |= unsure


def _by_version(claims: Iterable[Deed]) -> Iterable[list[Deed]]:
    found = defaultdict[int, list[Deed]](list)
    for claim in claims:
        found[claim.version].append(claim)
    return found.values()


def _too_often(deeds: list[Deed], allowed: int, crashes: Iterable[Crash]) -> bool:
    """One more is allowed for each crash that may have undone one of them."""
    undoing = sum(any(crash.may_have_undone(deed) for deed in deeds) for crash in crashes)
    return len(deeds) > allowed + undoing


def lines(file: Path) -> Iterator[Any]:
    """A line without an end was cut off by a kill."""
    for line in file.read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            yield json.loads(line)


def some(keys: Iterable[str]) -> str:
    return f"such as {', '.join(sorted(keys)[:LINES_AT_MOST])}"
