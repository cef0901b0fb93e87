"""Looking at something for many who want to know, but not each time that one of them asks."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

_Seen = TypeVar("_Seen")
_SHARE = 10
"""A look that takes a second is good for ten: whoever watches shall not keep the machine busy."""


class Sampler(Generic[_Seen]):
    """The last look, about `seconds` old at most.

    The first is waited for. Later ones are taken by one of those who ask, while the others get the one before.
    """

    def __init__(self, look: Callable[[], _Seen], seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._look, self._seconds, self._clock = look, seconds, clock
        self._looking = threading.Lock()
        self._seen: list[_Seen] = []
        self._next = clock()
        self.looks = 0

    def latest(self) -> _Seen:
        if self._clock() >= self._next and self._looking.acquire(blocking=not self._seen):
            try:
                if self._clock() >= self._next:
                    self._take()
            finally:
                self._looking.release()
        return self._seen[-1]

    def _take(self) -> None:
        started = self._clock()
        self._seen = [self._look()]
        self.looks += 1
        self._next = self._clock() + max(self._seconds, (self._clock() - started) * _SHARE)


class PerRun(Generic[_Seen]):
    """One thing a run; that of the run that nobody has asked for longest makes room."""

    def __init__(self, make: Callable[[str], _Seen], most: int = 16) -> None:
        self._make, self._most = make, most
        self._lock = threading.Lock()
        self._made: OrderedDict[str, _Seen] = OrderedDict()

    def __getitem__(self, run_id: str) -> _Seen:
        with self._lock:
            if run_id not in self._made:
                self._made[run_id] = self._make(run_id)
            self._made.move_to_end(run_id)
            while len(self._made) > self._most:
                self._made.popitem(last=False)
            return self._made[run_id]
