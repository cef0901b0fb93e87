"""One commit for all who send at the same time: what costs is the disk's confirmation, not the rows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from ticklake.database.errors import DatabaseLocked, DatabaseUnavailable
from ticklake.errors import TickLakeError
from ticklake.topics.envelope import Envelope
from ticklake.topics.retry import patiently
from ticklake.topics.store import TopicStore

LONGEST_GATHERING = 0.002


class _Parcel:
    """What one sender brings, and what became of it. Its sender sleeps until it is done or has to commit itself."""

    __slots__ = ("done", "envelopes", "error", "topic", "turn")

    def __init__(self, topic: str, envelopes: Sequence[Envelope]) -> None:
        self.topic = topic
        self.envelopes = envelopes
        self.turn = threading.Lock()
        self.turn.acquire()
        self.done = False
        self.error: BaseException | None = None


class Publisher:
    """Publishes for all the writers of a run. Who comes while a commit is under way shares the next one.

    A parcel is in the queue until it is stored. To store it again is harmless, so a leader that is interrupted, at
    whatever byte code, leaves the queue to the next one as it is.
    """

    def __init__(self, store: TopicStore, tell: Callable[[TickLakeError], object] = lambda _: None) -> None:
        """`tell` hears of each failure of the database."""
        self._store, self.tell = store, tell
        self._lock = threading.Lock()
        self._enough = threading.Lock()
        self._enough.acquire()
        self._queue: list[_Parcel] = []
        self._leader: _Parcel | None = None
        self._expected = 1

    def publish(self, topic: str, envelopes: Sequence[Envelope]) -> None:
        """Returns when they are durable."""
        mine = _Parcel(topic, envelopes)
        try:
            try:
                self._join(mine)
                mine.turn.acquire()  # somebody has committed it, or has left the queue to this thread
                if not mine.done:
                    self._commit_queue()
            finally:
                self._leave(mine)
        finally:
            self._leave(mine)  # again, in case that the first was interrupted
        if mine.error is not None:
            raise mine.error

    def _join(self, mine: _Parcel) -> None:
        with self._lock:
            self._queue.append(mine)
            if self._leader is None:
                self._lead(mine)
            elif len(self._queue) >= self._expected:
                _open(self._enough)

    def _leave(self, mine: _Parcel) -> None:
        """Also of a thread that was interrupted: nobody may wait for it."""
        with self._lock:
            if self._leader is mine:
                self._leader = None
            if self._leader is None:
                self._settle()
            if mine in self._queue:
                self._queue.remove(mine)
            if self._leader is None and self._queue:
                self._lead(self._queue[0])

    def _settle(self) -> None:
        """Lets go of those that are stored."""
        for parcel in self._queue:
            if parcel.done:
                _open(parcel.turn)
        self._queue = [parcel for parcel in self._queue if not parcel.done]

    def _lead(self, parcel: _Parcel) -> None:
        _open(parcel.turn)
        self._leader = parcel

    def _commit_queue(self) -> None:
        parcels = self._gather()
        self._commit(parcels)
        for parcel in parcels:
            parcel.done = True
        with self._lock:
            self._expected = len(self._queue)
            self._settle()

    def _gather(self) -> list[_Parcel]:
        """Those who shared the last commit are on their way back: a moment's wait saves them a commit of their own."""
        if len(self._queue) < self._expected:
            self._enough.acquire(timeout=LONGEST_GATHERING)
        with self._lock:
            return list(self._queue)

    def _commit(self, parcels: Sequence[_Parcel]) -> None:
        try:
            patiently(lambda: self._store.publish_all([(p.topic, p.envelopes) for p in parcels]), tell=self.tell)
        except (DatabaseUnavailable, DatabaseLocked) as error:  # after a long wait, and whatever is sent
            for parcel in parcels:
                parcel.error = error
        except TickLakeError as error:
            if len(parcels) == 1:
                parcels[0].error = error
                return
            for parcel in parcels:  # one of them spoils it for all: each on its own
                self._commit([parcel])


def _open(lock: threading.Lock) -> None:
    """Lets one thread through; if it is open already, it stays so."""
    with suppress(RuntimeError):
        lock.release()
