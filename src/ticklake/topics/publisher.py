"""Group commit: threads that send at the same time share one commit, because waiting for the disk is the main cost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from ticklake import defaults
from ticklake.database.errors import DatabaseLocked, DatabaseUnavailable
from ticklake.database.retry import retry_while_unavailable
from ticklake.errors import TickLakeError
from ticklake.topics.envelope import Envelope
from ticklake.topics.store import TopicStore

LONGEST_GATHERING = 0.002


class _Parcel:
    """The messages of one sender and their result. The sender waits until they are stored or it becomes the leader."""

    __slots__ = ("done", "envelopes", "error", "patience", "topic", "turn")

    def __init__(self, topic: str, envelopes: Sequence[Envelope], patience: float) -> None:
        self.topic = topic
        self.envelopes = envelopes
        self.patience = patience
        self.turn = threading.Lock()
        self.turn.acquire()
        self.done = False
        self.error: BaseException | None = None


class Publisher:
    """Publishes for all writers of a run. Parcels that arrive during a commit share the next one.

    The leader commits the whole queue. A parcel stays in the queue until it is stored. Storing it twice is harmless, so
    a leader can be interrupted at any byte code: the next leader commits the queue again.
    """

    def __init__(self, store: TopicStore, on_error: Callable[[TickLakeError], object] = lambda _: None) -> None:
        """`on_error` is called with each failure of the database."""
        self._store, self.on_error = store, on_error
        self._lock = threading.Lock()
        self._enough = threading.Lock()
        self._enough.acquire()
        self._queue: list[_Parcel] = []
        self._leader: _Parcel | None = None
        self._expected = 1

    def publish(
        self, topic: str, envelopes: Sequence[Envelope], patience: float = defaults.SEND_PATIENCE_SECONDS
    ) -> None:
        """Publishes messages. Returns when they are durable. Senders who share a commit are as patient as the most."""
        mine = _Parcel(topic, envelopes, patience)
        try:
            try:
                self._join(mine)
                mine.turn.acquire()  # it is committed, or this thread is the leader
                if not mine.done:
                    self._commit_queue()
            finally:
                self._leave(mine)
        finally:
            self._leave(mine)  # again, in case the first call was interrupted
        if mine.error is not None:
            raise mine.error

    def _join(self, mine: _Parcel) -> None:
        with self._lock:
            self._queue.append(mine)
            if self._leader is None:
                self._lead(mine)
            elif len(self._queue) >= self._expected:
                _unlock(self._enough)

    def _leave(self, mine: _Parcel) -> None:
        """Removes a parcel and names the next leader. Called even after an interrupt: no thread may wait for it."""
        with self._lock:
            if self._leader is mine:
                self._leader = None
            if self._leader is None:
                self._remove_stored()
            if mine in self._queue:
                self._queue.remove(mine)
            if self._leader is None and self._queue:
                self._lead(self._queue[0])

    def _remove_stored(self) -> None:
        """Removes stored parcels from the queue and wakes up their senders."""
        for parcel in self._queue:
            if parcel.done:
                _unlock(parcel.turn)
        self._queue = [parcel for parcel in self._queue if not parcel.done]

    def _lead(self, parcel: _Parcel) -> None:
        """Makes the sender of `parcel` the leader."""
        _unlock(parcel.turn)
        self._leader = parcel

    def _commit_queue(self) -> None:
        parcels = self._gather()
        self._commit(parcels)
        for parcel in parcels:
            parcel.done = True
        with self._lock:
            self._expected = len(self._queue)
            self._remove_stored()

    def _gather(self) -> list[_Parcel]:
        """Waits a moment for the senders of the last commit, who usually send again. Then they share this commit."""
        if len(self._queue) < self._expected:
            self._enough.acquire(timeout=LONGEST_GATHERING)
        with self._lock:
            return list(self._queue)

    def _commit(self, parcels: Sequence[_Parcel]) -> None:
        try:
            retry_while_unavailable(
                lambda: self._store.publish_all([(p.topic, p.envelopes) for p in parcels]),
                on_error=self.on_error,
                seconds=max(parcel.patience for parcel in parcels),
            )
        except (DatabaseUnavailable, DatabaseLocked) as error:  # already retried for long; no parcel is the cause
            for parcel in parcels:
                parcel.error = error
        except TickLakeError as error:
            if len(parcels) == 1:
                parcels[0].error = error
                return
            for parcel in parcels:  # one of them makes the commit fail: commit each alone
                self._commit([parcel])


def _unlock(lock: threading.Lock) -> None:
    """Releases a lock if it is locked."""
    with suppress(RuntimeError):
        lock.release()
