"""What a forked process inherits is its parent's: it is not used there, not closed, and not cleared away."""

from __future__ import annotations

import ctypes
import os
import weakref
from abc import ABC, abstractmethod

from ticklake.errors import DatabaseForked


class Inheritable(ABC):
    """Something that belongs to the process that made it. `_disown` is called in every process forked from that."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        _all.add(self)

    @property
    def inherited(self) -> bool:
        return os.getpid() != self._pid

    def check_process(self, what: object) -> None:
        """Raises `DatabaseForked` in a forked process."""
        if os.getpid() != self._pid:
            raise DatabaseForked(database=what, parent=self._pid, child=os.getpid())

    @abstractmethod
    def _disown(self) -> None:
        """Lets go of what the parent still uses, without closing it."""


def keep_for_ever(inherited: object) -> None:
    """To free it would close it, and that would write to what the parent uses."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(inherited))


def _disown_all() -> None:
    for one in list(_all):
        one._disown()


_all: weakref.WeakSet[Inheritable] = weakref.WeakSet()
os.register_at_fork(after_in_child=_disown_all)
