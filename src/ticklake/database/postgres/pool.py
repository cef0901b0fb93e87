"""Connections for many threads. Who uses one is written in its slot, and taken and given back explicitly.

An exception keeps its frames alive, and frames keep what they worked with, for as long as anybody likes. So nothing
here is in use because something refers to it.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

from ticklake.database.fork import Fork, Inheritable, keep_for_ever
from ticklake.database.waiting import Turn, Waiters

MAX_IDLE_SECONDS = 600.0


class Connection(Protocol):
    def close(self) -> None:
        """Can be repeated."""


_Connection = TypeVar("_Connection", bound=Connection)


class Slot(Generic[_Connection]):
    """One place of the pool, its connection if it has one, and whose turn it is."""

    def __init__(self) -> None:
        self.connection: _Connection | None = None
        self.idle_since = 0.0
        self.turn = Turn()

    @property
    def busy(self) -> bool:
        return self.turn.holder is not None

    def close(self) -> None:
        self.idle_since = 0.0
        try:
            if self.connection is not None:
                self.connection.close()
        finally:
            self.connection = None


class Pool(Inheritable, Generic[_Connection]):
    """At most `size` connections, made when they are needed; the one that came back last goes out first: it is warm.

    Beyond `keep` idle ones, those that nobody has needed for ten minutes are closed. Users are known by a `reference`
    to them; what they have taken they give back with it, however far they had come.
    """

    def __init__(
        self,
        connect: Callable[[], _Connection],
        usable: Callable[[_Connection], bool],
        *,
        size: int,
        keep: int,
    ) -> None:
        super().__init__()
        self._connect = connect
        self._usable = usable
        self._keep = keep
        self._slots: list[Slot[_Connection]] = [Slot() for _ in range(size)]
        self._closed = False
        self.waiters = Waiters()

    @property
    def active(self) -> int:
        return sum(slot.busy for slot in self._slots)

    @property
    def idle(self) -> int:
        return len(self._idle())

    def reference(self, user: object) -> weakref.ref[object]:
        """What `user` takes a connection with. Should it die without giving it back, the connection is closed."""
        return weakref.ref(user, self._abandoned)

    def take(self, mine: weakref.ref[object], seconds: float) -> _Connection | None:
        """A connection; None if all are in use for so long. Raises what `connect` raises."""
        try:
            slot = self._find(mine) or self.waiters.wait_for(lambda: self._find(mine), seconds)
            if slot is None:
                return None
            if slot.connection is not None and not self._usable(slot.connection):
                slot.close()
            if slot.connection is None:
                slot.connection = self._connect()
            return slot.connection
        except BaseException:
            self.give_back(mine)
            raise

    def held(self, mine: weakref.ref[object]) -> _Connection | None:
        """The connection that was taken with `mine`; None if there is none yet, or not any more."""
        return next((slot.connection for slot in self._slots if slot.turn.held(mine)), None)

    def discard(self, mine: weakref.ref[object]) -> None:
        """Closes what was taken with `mine`: it is of no use any more. It is still to be given back."""
        for slot in self._slots:
            if slot.turn.held(mine):
                slot.close()

    def give_back(self, mine: weakref.ref[object]) -> None:
        """Does nothing if nothing was taken: it can be repeated."""
        if self._closed or self.inherited:
            self.discard(mine)
        for slot in self._outdated():
            if slot.turn.try_to_take(mine):
                slot.close()
        for slot in self._slots:
            if slot.turn.held(mine):
                slot.idle_since = time.monotonic() if slot.connection is not None else 0.0
                slot.turn.give_back(mine)
        self.waiters.ring()
        if self._closed:
            self.close()  # that may have come in between

    def close(self) -> None:
        """Closes those that are idle; the others are closed when they come back."""
        self._closed = True
        closing = _Closing()
        mine = weakref.ref[object](closing)  # without what follows an owner's death: that closes, too
        try:
            for slot in self._idle():
                if slot.turn.try_to_take(mine):
                    slot.close()
                    slot.turn.give_back(mine)
        finally:
            for slot in self._slots:
                if slot.turn.held(mine):
                    slot.turn.give_back(mine)

    def _find(self, mine: weakref.ref[object]) -> Slot[_Connection] | None:
        warmest_first = sorted(self._slots, key=lambda slot: -slot.idle_since)
        return next((slot for slot in warmest_first if slot.turn.try_to_take(mine)), None)

    def _idle(self) -> list[Slot[_Connection]]:
        return [slot for slot in self._slots if slot.connection is not None and not slot.busy]

    def _outdated(self) -> list[Slot[_Connection]]:
        oldest = time.monotonic() - MAX_IDLE_SECONDS
        surplus = sorted(self._idle(), key=lambda slot: -slot.idle_since)[self._keep :]
        return [slot for slot in surplus if slot.idle_since < oldest]

    def _abandoned(self, mine: weakref.ref[object]) -> None:
        with suppress(Exception):
            self.discard(mine)
        self.give_back(mine)

    def _disown(self, fork: Fork) -> None:  # noqa: ARG002
        for slot in self._slots:
            if slot.connection is not None:
                keep_for_ever(slot.connection)
                slot.connection = None


class _Closing:
    """Takes a slot to close it."""
