"""A pool of connections for many threads. A slot records its user, which acquires and releases it explicitly.

An exception can keep frames and their variables alive for any time. So a reference to a connection does not mean that
the connection is in use.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

from ticklake.database.fork import Fork, Inheritable, leak
from ticklake.database.interrupt_safe import Turn, Waiters

MAX_IDLE_SECONDS = 600.0


class Connection(Protocol):
    def close(self) -> None:
        """Closes the connection. Can be repeated."""


_Connection = TypeVar("_Connection", bound=Connection)


class Slot(Generic[_Connection]):
    """A slot of the pool: its connection, if there is one, and its user."""

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
    """At most `size` connections, opened on demand. The most recently used idle connection is acquired first.

    More than `keep` idle connections are closed after ten minutes without use. A user is identified by a `reference`,
    with which it can release its connection at any time, even if `acquire` was interrupted.
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
        self.size = size
        self._slots: list[Slot[_Connection]] = [Slot() for _ in range(size)]
        self._closed = False
        self.waiters = Waiters()

    @property
    def active(self) -> int:
        return sum(slot.busy for slot in self._slots)

    @property
    def idle(self) -> int:
        return len(self._idle())

    def users(self) -> list[object]:
        """Returns the users of all connections that are in use."""
        return [user for slot in self._slots if (user := slot.turn.holder) is not None]

    def reference(self, user: object) -> weakref.ref[object]:
        """Returns the reference of a user. If the user is freed without a release, its connection is closed."""
        return weakref.ref(user, self._abandoned)

    def acquire(self, mine: weakref.ref[object], seconds: float) -> _Connection | None:
        """Returns a connection; None if all are in use for `seconds`. Raises what `connect` raises."""
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
            self.release(mine)
            raise

    def held(self, mine: weakref.ref[object]) -> _Connection | None:
        """Returns the connection that was acquired with `mine`, or None."""
        return next((slot.connection for slot in self._slots if slot.turn.held(mine)), None)

    def discard(self, mine: weakref.ref[object]) -> None:
        """Closes the connection that was acquired with `mine`. It must still be released."""
        for slot in self._slots:
            if slot.turn.held(mine):
                slot.close()

    def release(self, mine: weakref.ref[object]) -> None:
        """Releases what was acquired with `mine`, if anything. Can be repeated."""
        if self._closed or self.inherited:
            self.discard(mine)
        for slot in self._outdated():
            if slot.turn.try_acquire(mine):
                slot.close()
        for slot in self._slots:
            if slot.turn.held(mine):
                slot.idle_since = time.monotonic() if slot.connection is not None else 0.0
                slot.turn.release(mine)
        self.waiters.wake_next()
        if self._closed:
            self.close()  # the pool may have been closed meanwhile

    def close(self) -> None:
        """Closes idle connections. The others are closed when they are released."""
        self._closed = True
        closing = _Closing()
        mine = weakref.ref[object](closing)  # without the callback of `reference`, which closes too
        try:
            for slot in self._idle():
                if slot.turn.try_acquire(mine):
                    slot.close()
                    slot.turn.release(mine)
        finally:
            for slot in self._slots:
                if slot.turn.held(mine):
                    slot.turn.release(mine)

    def _find(self, mine: weakref.ref[object]) -> Slot[_Connection] | None:
        warmest_first = sorted(self._slots, key=lambda slot: -slot.idle_since)
        return next((slot for slot in warmest_first if slot.turn.try_acquire(mine)), None)

    def _idle(self) -> list[Slot[_Connection]]:
        return [slot for slot in self._slots if slot.connection is not None and not slot.busy]

    def _outdated(self) -> list[Slot[_Connection]]:
        oldest = time.monotonic() - MAX_IDLE_SECONDS
        surplus = sorted(self._idle(), key=lambda slot: -slot.idle_since)[self._keep :]
        return [slot for slot in surplus if slot.idle_since < oldest]

    def _abandoned(self, mine: weakref.ref[object]) -> None:
        with suppress(Exception):
            self.discard(mine)
        self.release(mine)

    def _disown(self, fork: Fork) -> None:  # noqa: ARG002
        for slot in self._slots:
            if slot.connection is not None:
                leak(slot.connection)
                slot.connection = None


class _Closing:
    """The user of a slot that is being closed."""
