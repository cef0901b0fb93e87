"""A lock that is not lost if an interrupt raises an exception between two byte codes.

A `threading.Lock` can be lost between acquiring it and recording its holder. Here the record is the lock, and a single
C call acquires it. A holder that was garbage-collected holds nothing.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

POLL_SECONDS = 0.05
"""A wake-up may be lost to an interrupt, so waiting threads also check this often."""

_HOLDER = "holder"
_Result = TypeVar("_Result")


class Waiters:
    """Threads that wait for a release."""

    def __init__(self) -> None:
        self._waiting: deque[threading.Lock] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def wait_for(self, attempt: Callable[[], _Result | None], seconds: float) -> _Result | None:
        """Repeats `attempt` until it returns something; returns None after `seconds`."""
        deadline = time.monotonic() + seconds
        wakeup = threading.Lock()
        wakeup.acquire()
        try:
            self._waiting.append(wakeup)
            while (found := attempt()) is None:
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                wakeup.acquire(timeout=min(left, POLL_SECONDS))
            return found
        finally:
            with suppress(ValueError):
                self._waiting.remove(wakeup)

    def wake_next(self) -> None:
        """Wakes up the thread that has waited longest."""
        if self._waiting:
            with suppress(IndexError, RuntimeError):  # it has just left, or is already awake
                self._waiting[0].release()


class Turn:
    """A lock with one holder at a time. A holder is identified by a weak reference, with which it also releases.

    Release explicitly: an exception may keep the holder alive, so its garbage collection is only the last resort.
    """

    def __init__(self, abandoned: Callable[[], None] = lambda: None) -> None:
        """`abandoned` cleans up after a holder that was garbage-collected."""
        self._slot: dict[str, weakref.ref[object]] = {}
        self._abandoned = abandoned
        self.waiters = Waiters()

    @property
    def holder(self) -> object | None:
        reference = self._slot.get(_HOLDER)
        return None if reference is None else reference()

    def reference(self, holder: object) -> weakref.ref[object]:
        """Returns the reference of a holder. If the holder is freed without a release, the lock is released."""
        return weakref.ref(holder, self._died)

    def acquire(self, mine: weakref.ref[object], seconds: float) -> bool:
        waited = self.try_acquire(mine) or self.waiters.wait_for(lambda: self.try_acquire(mine) or None, seconds)
        return waited is not None

    def try_acquire(self, mine: weakref.ref[object]) -> bool:
        return self._slot.setdefault(_HOLDER, mine) is mine

    def held(self, mine: weakref.ref[object]) -> bool:
        return self._slot.get(_HOLDER) is mine

    def release(self, mine: weakref.ref[object]) -> None:
        """Releases the lock if `mine` holds it. Can be repeated."""
        if self.held(mine):
            del self._slot[_HOLDER]
        self.waiters.wake_next()

    def revoke(self, holder: object) -> None:
        """Releases the lock if `holder` holds it."""
        if self.holder is holder:
            self._slot.pop(_HOLDER, None)
            self.waiters.wake_next()

    def _died(self, reference: weakref.ref[object]) -> None:
        if self.held(reference):
            try:
                self._abandoned()
            finally:
                self.release(reference)
