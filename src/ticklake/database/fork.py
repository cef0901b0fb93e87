"""Handles forks. A forked process must not use, close or free the connections of its parent."""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
import time
import weakref
from abc import ABC, abstractmethod

from ticklake.database.errors import DatabaseForked

FORK_SECONDS = 1.0
"""How long a fork waits for other threads."""


class Fork:
    """A fork in progress. It holds the connections that must not be used meanwhile."""

    def __init__(self) -> None:
        self.parent = os.getpid()
        self._end = time.monotonic() + FORK_SECONDS

    @property
    def seconds(self) -> float:
        """The remaining time to wait."""
        return max(0.0, self._end - time.monotonic())


class Inheritable(ABC):
    """An object of the process that created it. `_disown` is called in every forked process."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        _all[next(_numbers)] = self

    @property
    def inherited(self) -> bool:
        return os.getpid() != self._pid

    def check_process(self, what: object) -> None:
        """Raises `DatabaseForked` in a forked process."""
        if os.getpid() != self._pid:
            raise DatabaseForked(database=what, parent=self._pid, child=os.getpid())

    def _before_fork(self, fork: Fork) -> None:  # noqa: B027
        """In the parent: closes what a child must not inherit."""

    def _after_fork(self, fork: Fork) -> None:  # noqa: B027
        """In the parent: continues after the fork. Also called if `_before_fork` failed."""

    @abstractmethod
    def _disown(self, fork: Fork) -> None:
        """In the child: drops what the parent still uses, without closing it."""


def leak(inherited: object) -> None:
    """Keeps an object alive forever. Freeing it would close it and write to what the parent uses."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(inherited))


class _Current(threading.local):
    fork: Fork | None = None


def _before() -> None:
    fork = _current.fork = Fork()
    for one in _of(fork.parent):
        one._before_fork(fork)


def _after_in_parent() -> None:
    if (fork := _current.fork) is not None:
        for one in _of(fork.parent):
            one._after_fork(fork)
    _current.fork = None


def _after_in_child() -> None:
    if (fork := _current.fork) is not None:
        for one in _of(fork.parent):
            one._disown(fork)
    _current.fork = None


def _of(process: int) -> list[Inheritable]:
    """Returns the objects in the order of creation, so that two forking threads do not block each other."""
    found = (reference() for reference in _all.valuerefs())
    return [one for one in found if one is not None and one._pid == process]


_all: weakref.WeakValueDictionary[int, Inheritable] = weakref.WeakValueDictionary()
_numbers = itertools.count()
_current = _Current()
os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
