"""Taking turns, so that an exception at any byte code loses nothing.

A `threading.Lock` that is taken and then recorded can be lost in between. Here the record is the lock: one call of C
takes it. A holder that is garbage holds nothing.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

LOOK_SECONDS = 0.05
"""A wake-up may get lost to an interrupt: whoever waits also looks this often."""

_HOLDER = "holder"
_Result = TypeVar("_Result")


class Waiters:
    """Threads that wait for something to be given back."""

    def __init__(self) -> None:
        self._bells: deque[threading.Lock] = deque()

    def __len__(self) -> int:
        return len(self._bells)

    def wait_for(self, attempt: Callable[[], _Result | None], seconds: float) -> _Result | None:
        """Repeats `attempt` until it gives something; None after `seconds`."""
        deadline = time.monotonic() + seconds
        bell = threading.Lock()
        bell.acquire()
        try:
            self._bells.append(bell)
            while (found := attempt()) is None:
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                bell.acquire(timeout=min(left, LOOK_SECONDS))
            return found
        finally:
            with suppress(ValueError):
                self._bells.remove(bell)

    def ring(self) -> None:
        """Wakes the one that has waited longest."""
        if self._bells:
            with suppress(IndexError, RuntimeError):  # it has just gone, or is awake already
                self._bells[0].release()


class Turn:
    """What one holder at a time has. Holders are known by a weak reference to them, which they give it back with.

    That a dead holder holds nothing is the last resort: any exception may keep its frames, and what they refer to.
    """

    def __init__(self, abandoned: Callable[[], None] = lambda: None) -> None:
        """`abandoned` clears up after a holder that died."""
        self._slot: dict[str, weakref.ref[object]] = {}
        self._abandoned = abandoned
        self.waiters = Waiters()

    @property
    def holder(self) -> object | None:
        reference = self._slot.get(_HOLDER)
        return None if reference is None else reference()

    def reference(self, holder: object) -> weakref.ref[object]:
        """What `holder` takes it with. Should it die without giving it back, it is given back."""
        return weakref.ref(holder, self._died)

    def take(self, mine: weakref.ref[object], seconds: float) -> bool:
        waited = self.try_to_take(mine) or self.waiters.wait_for(lambda: self.try_to_take(mine) or None, seconds)
        return waited is not None

    def try_to_take(self, mine: weakref.ref[object]) -> bool:
        return self._slot.setdefault(_HOLDER, mine) is mine

    def held(self, mine: weakref.ref[object]) -> bool:
        return self._slot.get(_HOLDER) is mine

    def give_back(self, mine: weakref.ref[object]) -> None:
        """Does nothing if another one has it: it can be repeated."""
        if self.held(mine):
            del self._slot[_HOLDER]
        self.waiters.ring()

    def take_from(self, holder: object) -> None:
        """Does nothing if `holder` does not have it."""
        if self.holder is holder:
            self._slot.pop(_HOLDER, None)
            self.waiters.ring()

    def _died(self, reference: weakref.ref[object]) -> None:
        if self.held(reference):
            try:
                self._abandoned()
            finally:
                self.give_back(reference)
