"""PostgreSQL's snapshots and a group's position in plain Python, for Hypothesis to explore.

Transactions take numbers (xids) and ids whenever they like, and end in any order. A group is given messages by its
frontier, the snapshot of its last claim, and a rule that says which messages below the frontier that snapshot hides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple


class Snapshot(NamedTuple):
    """As pg_current_snapshot() shows it: xmax is one more than the highest number that has ended."""

    xmax: int
    running: frozenset[int]

    def __str__(self) -> str:
        return f"{min(self.running, default=self.xmax)}:{self.xmax}:{','.join(map(str, sorted(self.running)))}"


Unseen = Callable[[int, Snapshot], bool]


def unseen(xid: int, seen: Snapshot) -> bool:
    """The rule: topic_unseen() in SQL."""
    return xid >= seen.xmax or xid in seen.running


def unseen_in_version_3(xid: int, seen: Snapshot) -> bool:
    """The rule that lost messages: a transaction that runs in a snapshot need not be listed in it."""
    return xid in seen.running


@dataclass
class Transaction:
    """One that is open; its number is taken with its first row, or earlier."""

    xid: int | None = None
    reserved: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)


@dataclass
class Server:
    """Ids and numbers come from counters that no rollback sets back."""

    next_id: int = 1
    next_xid: int = 100
    ended: int = 99  # the highest number that has committed or rolled back
    running: set[int] = field(default_factory=set)
    committed: dict[int, int] = field(default_factory=dict)  # id -> xid of its transaction
    removed: set[int] = field(default_factory=set)

    def take_xid(self, transaction: Transaction) -> None:
        if transaction.xid is None:
            transaction.xid = self.next_xid
            self.running.add(self.next_xid)
            self.next_xid += 1

    def take_id(self, transaction: Transaction) -> int:
        transaction.reserved.append(self.next_id)
        self.next_id += 1
        return transaction.reserved[-1]

    def insert(self, transaction: Transaction) -> int:
        self.take_xid(transaction)
        if not transaction.reserved:
            self.take_id(transaction)
        transaction.rows.append(transaction.reserved.pop(0))
        return transaction.rows[-1]

    def end(self, transaction: Transaction, *, commit: bool) -> None:
        if transaction.xid is not None:
            self.running.discard(transaction.xid)
            self.ended = max(self.ended, transaction.xid)
            if commit:
                self.committed |= dict.fromkeys(transaction.rows, transaction.xid)

    def snapshot(self) -> Snapshot:
        return Snapshot(self.ended + 1, frozenset(xid for xid in self.running if xid <= self.ended))

    def messages(self) -> dict[int, int]:
        return {id_: xid for id_, xid in self.committed.items() if id_ not in self.removed}


@dataclass
class Group:
    """A consumer group; what it is given is acknowledged at once."""

    frontier: int
    seen: Snapshot
    unseen: Unseen = unseen
    claims: set[int] = field(default_factory=set)  # given once, or waiting for room
    waiting: list[int] = field(default_factory=list)  # late, and no room for it yet
    passed: set[int] = field(default_factory=set)  # was there when the position was set past it

    @classmethod
    def joined(cls, server: Server, *, at_end: bool, rule: Unseen = unseen) -> Group:
        group = cls(0, server.snapshot(), rule)
        if at_end:
            group.reset(server, max(server.messages(), default=0))
        return group

    def awaits(self, id_: int, xid: int) -> bool:
        """topic_awaited() in SQL, and no claim."""
        if id_ > self.frontier:
            return True
        return id_ in self.waiting or (id_ not in self.claims and self.unseen(xid, self.seen))

    def claim(self, server: Server, limit: int) -> list[int]:
        """topic_claim() in SQL: what waits for room, what is late, what comes after the frontier."""
        given, self.waiting = self.waiting[:limit], self.waiting[limit:]
        room = limit - len(given)
        if room == 0:
            return given
        found = server.messages()
        late = sorted(i for i, xid in found.items() if i <= self.frontier and self.awaits(i, xid))
        fresh = sorted(i for i in found if i > self.frontier)[: max(0, room - len(late))]
        if late or fresh:
            self.claims |= {*late, *fresh}
            self.waiting += late[room:]
            self.frontier = max([self.frontier, *fresh])
            self.seen = server.snapshot()
        return given + late[:room] + fresh

    def reset(self, server: Server, position: int) -> None:
        """Everything that is there after `position` is given again; the rest is passed over."""
        self.frontier, self.seen, self.waiting = position, server.snapshot(), []
        self.passed = {id_ for id_ in server.messages() if id_ <= position}


def remove_outdated(server: Server, groups: Iterable[Group]) -> set[int]:
    """Retention of everything that no group waits for."""
    groups = list(groups)
    outdated = {i for i, xid in server.messages().items() if not any(group.awaits(i, xid) for group in groups)}
    server.removed |= outdated
    return outdated
