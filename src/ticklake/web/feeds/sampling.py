"""Samples shared by many viewers, taken at most every few seconds."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

_Seen = TypeVar("_Seen")
_KEEP_FACTOR = 10
"""A sample that took a second is kept for ten, so that viewers do not keep the machine busy."""


class Sampler(Generic[_Seen]):
    """Keeps the last sample, which is at most about `seconds` old.

    All callers wait for the first sample. Later ones are taken by one caller, while the others get the previous one.
    """

    def __init__(self, take: Callable[[], _Seen], seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._take, self._seconds, self._clock = take, seconds, clock
        self._taking = threading.Lock()
        self._seen: list[_Seen] = []
        self._next = clock()

    def latest(self) -> _Seen:
        if self._clock() >= self._next and self._taking.acquire(blocking=not self._seen):
            try:
                if self._clock() >= self._next:
                    self._update()
            finally:
                self._taking.release()
        return self._seen[-1]

    def _update(self) -> None:
        started = self._clock()
        self._seen = [self._take()]
        self._next = self._clock() + max(self._seconds, (self._clock() - started) * _KEEP_FACTOR)


class PerRun(Generic[_Seen]):
    """A cache with one object per run. It drops the least recently used one."""

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
