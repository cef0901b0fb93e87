"""Connections for many threads. What belongs to whom is said by references alone, so an interrupt can lose none.

A link is either idle (the pool refers to it) or in somebody's hands (they do). One that nobody refers to any more is
garbage: it closes its connection, and its place is free.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

from ticklake.database.fork import Fork, Inheritable, keep_for_ever
from ticklake.database.waiting import Waiters

MAX_IDLE_SECONDS = 600.0


class Connection(Protocol):
    def close(self) -> None: ...


_Connection = TypeVar("_Connection", bound=Connection)


class Link(Generic[_Connection]):
    """One place of the pool, and the connection that has it."""

    def __init__(self) -> None:
        self.connection: _Connection | None = None
        self.idle_since = 0.0

    def connected(self) -> _Connection:
        if self.connection is None:
            raise RuntimeError("This link has no connection.")
        return self.connection

    def close(self) -> None:
        if self.connection is not None:
            connection, self.connection = self.connection, None
            connection.close()

    def __del__(self) -> None:
        with suppress(Exception):
            self.close()


class Pool(Inheritable, Generic[_Connection]):
    """At most `size` connections, made when they are needed; the one that came back last goes out first: it is warm.

    Beyond `keep` idle ones, those that nobody has needed for ten minutes are closed.
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
        self._size = size
        self._keep = keep
        self._places: dict[int, weakref.ref[Link[_Connection]]] = {}
        self._idle: list[Link[_Connection]] = []
        self._closed = False
        self.waiters = Waiters()

    @property
    def total(self) -> int:
        return len(self._places)

    @property
    def idle(self) -> int:
        return len(self._idle)

    def take(self, seconds: float) -> Link[_Connection] | None:
        """A link with a connection; None if all are in use for so long. Raises what `connect` raises."""
        link = self._find() or self.waiters.wait_for(self._find, seconds)
        if link is not None and link.connection is None:
            link.connection = self._connect()
        return link

    def give_back(self, link: Link[_Connection]) -> None:
        """The caller must forget the link before it calls this, and close a connection that is of no use any more."""
        if link.connection is None or self._closed or self.inherited:
            link.close()
        else:
            link.idle_since = time.monotonic()
            self._idle.append(link)
            self._prune()
        self.waiters.ring()

    def close(self) -> None:
        """Closes those that are idle; the others are closed when they come back."""
        self._closed = True
        while self._idle:
            with suppress(IndexError):
                self._idle.pop().close()

    def _find(self) -> Link[_Connection] | None:
        while self._idle:
            with suppress(IndexError):
                link = self._idle.pop()
                if link.connection is not None and self._usable(link.connection):
                    return link
                link.close()
        return self._reserve()

    def _reserve(self) -> Link[_Connection] | None:
        """A link without a connection in a place that is free."""
        link: Link[_Connection] = Link()
        places, waiters = self._places, self.waiters
        for place in range(self._size):

            def died(reference: weakref.ref[Link[_Connection]], place: int = place) -> None:
                if places.get(place) is reference:
                    del places[place]
                waiters.ring()

            reference = weakref.ref(link, died)
            if places.setdefault(place, reference) is reference:
                return link
        return None

    def _prune(self) -> None:
        oldest = time.monotonic() - MAX_IDLE_SECONDS
        while len(self._idle) > self._keep and self._idle[0].idle_since < oldest:
            with suppress(IndexError):
                self._idle.pop(0).close()

    def _disown(self, fork: Fork) -> None:  # noqa: ARG002
        for reference in list(self._places.values()):
            if (link := reference()) is not None and link.connection is not None:
                keep_for_ever(link.connection)
                link.connection = None
        self._idle.clear()
