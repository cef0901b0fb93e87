"""Topics in plain Python: what each group has done with each message, and every figure that an operator sees."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

STUCK_MS = 300_000


@dataclass
class Entry:
    """A message that a group has received."""

    version: int = 0
    attempts: int = 0
    holder: str | None = None
    claimed_at: int = 0
    since: int = 0
    until: int | None = None  # the end of the lease, or of the delay; None: a lease that never ends
    state: str = "open"  # or acknowledged, set aside

    @property
    def is_open(self) -> bool:
        return self.state == "open"


class Given(NamedTuple):
    """A claim: the number of the message, and what the consumer is told."""

    number: int
    version: int
    attempts: int
    previous_holder: str | None


@dataclass
class Group:
    frontier: int = 0
    entries: dict[int, Entry] = field(default_factory=dict)
    dead: dict[int, tuple[int, int]] = field(default_factory=dict)  # attempts, time


class Model:
    """A topic. Messages are numbered from 1 in the order of their storage."""

    def __init__(self, now: int) -> None:
        self.now = now
        self.stored: dict[int, int] = {}  # number: time
        self.groups: dict[str, Group] = {}

    def publish(self, numbers: Iterable[int]) -> int:
        new = [number for number in numbers if number not in self.stored]
        self.stored |= dict.fromkeys(new, self.now)
        return len(new)

    def join(self, group: str, *, at_end: bool) -> None:
        self.groups.setdefault(group, Group(max(self.stored, default=0) if at_end else 0))

    def claim(self, name: str, consumer: str, lease: int, most: int, limit: int) -> tuple[list[Given], list[int]]:
        """Returns claims and dead letters. Each takes up room; the oldest messages that are free again come first."""
        group = self.groups[name]
        self._notice_the_clock(group)
        given: list[Given] = []
        dead: list[int] = []
        free = [
            number for number, e in group.entries.items() if e.is_open and e.until is not None and e.until <= self.now
        ]
        for number in sorted(free):
            group.entries[number].until = 0
        for number in sorted(free)[:limit]:
            entry = group.entries[number]
            if entry.attempts >= most:
                self._bury(group, number)
                dead.append(number)
            else:
                before, entry.attempts = entry.holder, entry.attempts + 1
                given.append(self._give(entry, number, consumer, lease, before))
        for number in self._after(group)[: limit - len(given) - len(dead)]:
            entry = group.entries.setdefault(number, Entry())
            entry.attempts, entry.state, group.frontier = 1, "open", number
            given.append(self._give(entry, number, consumer, lease, None))
        return given, dead

    def wait(self, name: str) -> int | None:
        """The time until a message is free again; None if there is none."""
        ends = [e.until for e in self.groups[name].entries.values() if e.is_open and e.until is not None]
        return max(0, min(ends) - self.now) if ends else None

    def held(self, name: str, number: int, version: int, consumer: str) -> Entry | None:
        entry = self.groups[name].entries.get(number)
        return entry if entry and entry.is_open and (entry.version, entry.holder) == (version, consumer) else None

    def ack(self, name: str, number: int, version: int, consumer: str) -> tuple[bool, bool]:
        """Returns whether the message is acknowledged with this claim, and whether that is new."""
        entry = self.held(name, number, version, consumer)
        if entry is not None:
            entry.state = "acknowledged"
            self.groups[name].dead.pop(number, None)
            return True, True
        known = self.groups[name].entries.get(number)
        again = known is not None and known.state == "acknowledged"
        return again and (known.version, known.holder) == (version, consumer), False  # type: ignore[union-attr]

    def extend(self, name: str, number: int, version: int, consumer: str, lease: int) -> bool:
        entry = self.held(name, number, version, consumer)
        if entry is not None:
            entry.since, entry.until = self.now, self.now + lease if lease else None
            entry.claimed_at = min(entry.claimed_at, self.now)
        return entry is not None

    def release(self, name: str, number: int, version: int, consumer: str, delay: int, forgiven: int) -> bool:
        entry = self.held(name, number, version, consumer)
        if entry is not None:
            entry.holder, entry.since, entry.attempts = None, self.now, entry.attempts - forgiven
            entry.until = self.now + delay if delay else 0
        return entry is not None

    def force_release(self, name: str, forgiven: int) -> int:
        held = [e for e in self.groups[name].entries.values() if e.is_open and e.holder is not None]
        for entry in held:
            entry.holder, entry.until, entry.attempts = None, 0, entry.attempts - forgiven
        return len(held)

    def bury(self, name: str, number: int, version: int, consumer: str) -> bool:
        entry = self.held(name, number, version, consumer)
        if entry is not None:
            self._bury(self.groups[name], number)
        return entry is not None

    def replay(self, name: str) -> int:
        group = self.groups[name]
        again = [n for n in group.dead if n <= group.frontier and group.entries[n].state == "set aside"]
        for number in again:
            entry = group.entries[number]
            entry.state, entry.holder, entry.until, entry.attempts = "open", None, 0, 0
        group.dead.clear()
        return len(again)

    def discard(self, name: str) -> int:
        count = len(self.groups[name].dead)
        self.groups[name].dead.clear()
        return count

    def reset(self, name: str, frontier: int) -> int:
        group = self.groups[name]
        group.frontier = frontier
        for entry in group.entries.values():
            if entry.is_open:
                entry.state, entry.holder, entry.version = "set aside", None, entry.version + 1
        return len(self._after(group))

    def retain(self, max_age: int | None, max_count: int | None, *, force: bool) -> int:
        kept = set(sorted(self.stored)[-max_count:] if max_count else []) if max_count is not None else set(self.stored)
        old = [
            number
            for number, at in self.stored.items()
            if (number not in kept or (max_age is not None and at < self.now - max_age))
            and not any(number in group.dead or _needs(group, number, force) for group in self.groups.values())
        ]
        for number in old:
            del self.stored[number]
            for group in self.groups.values():
                group.entries.pop(number, None)
        return len(old)

    def figures(self, name: str) -> tuple[int, int, int, int | None]:
        """The lag, the number of claimed messages and of dead letters, and the age of the oldest message."""
        group = self.groups[name]
        waiting = [n for n, e in group.entries.items() if e.is_open] + self._after(group)
        age = max(0, self.now - self.stored[min(waiting)]) if waiting else None
        claimed = sum(e.is_open and e.holder is not None for e in group.entries.values())
        return len(waiting), claimed, len(group.dead), age

    def dead_letters(self, name: str) -> list[tuple[int, int]]:
        """Numbers and attempts, oldest first."""
        dead = self.groups[name].dead
        return [(n, dead[n][0]) for n in sorted(dead, key=lambda n: (dead[n][1], n))]

    def claims(self, name: str, *, stuck: bool = False) -> list[tuple[int, str | None, int, int, int, int | None]]:
        """Numbers, holders, versions, attempts, ages and the time that is left, oldest first."""
        found = [(n, e) for n, e in self.groups[name].entries.items() if e.is_open and e.holder is not None]
        ends = {n: e.claimed_at + STUCK_MS if e.until is None else e.until for n, e in found}
        return [
            (n, e.holder, e.version, e.attempts, max(0, self.now - e.claimed_at), self._left(e))
            for n, e in sorted(found, key=lambda one: (one[1].claimed_at, one[0]))
            if not stuck or e.since > self.now or ends[n] <= self.now
        ]

    def browse(self, name: str) -> list[tuple[int, str]]:
        entries = self.groups[name].entries
        return [(n, _state(entries.get(n))) for n in sorted(self.stored)]

    def _left(self, entry: Entry) -> int | None:
        if entry.until is not None and entry.until < entry.since:
            return min(-1, entry.since - self.now)
        return None if entry.until is None else entry.until - self.now

    def _after(self, group: Group) -> list[int]:
        return [number for number in sorted(self.stored) if number > group.frontier]

    def _give(self, entry: Entry, number: int, consumer: str, lease: int, before: str | None) -> Given:
        entry.version, entry.holder, entry.claimed_at, entry.since = entry.version + 1, consumer, self.now, self.now
        entry.until = self.now + lease if lease else None
        return Given(number, entry.version, entry.attempts, before)

    def _bury(self, group: Group, number: int) -> None:
        entry = group.entries[number]
        entry.state, entry.holder, entry.version = "set aside", None, entry.version + 1
        group.dead[number] = (entry.attempts, self.now)

    def _notice_the_clock(self, group: Group) -> None:
        """What began before the clock was set back lasts from now on as long as it was meant to."""
        for entry in group.entries.values():
            if entry.is_open and entry.since > self.now:
                if entry.until is not None and entry.until > self.now:
                    entry.until += self.now - entry.since
                entry.since, entry.claimed_at = self.now, min(entry.claimed_at, self.now)


def _needs(group: Group, number: int, force: bool) -> bool:
    entry = group.entries.get(number)
    if entry is None or number > group.frontier:
        return not force and number > group.frontier
    return entry.is_open and (not force or entry.holder is not None)


def _state(entry: Entry | None) -> str:
    if entry is None:
        return "new"
    return entry.state if not entry.is_open else "claimed" if entry.holder is not None else "released"
