"""A piece of work on a connection, from taking it to giving it back, that survives an exception at any byte code."""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, ClassVar, Generic, TypeVar

from ticklake.database.schema import Transaction
from ticklake.errors import TickLakeError

_Transaction = TypeVar("_Transaction", bound=Transaction)
Exit = Callable[[type[BaseException] | None, BaseException | None, TracebackType | None], None]


class _Door:
    """`__exit__` as an object that only the `with` statement holds.

    An exception can come after the block and before the first byte code of `__exit__`, which then never runs. But the
    `with` statement drops its `__exit__` in any case, and that is noticed: no traceback keeps this object alive.
    """

    def __get__(self, work: Work[Any] | None, owner: object = None) -> Exit:
        return Work.leave if work is None else work.door()  # type: ignore[return-value]


class Work(ABC, Generic[_Transaction]):
    """Begins, commits, and ends in any case; a context manager.

    No local variable here may hold an exception: the two would keep each other alive, and the connection with them.
    `_end` undoes whatever `_begin` had come to, also nothing, and can be repeated. It is called a second time in case
    the first was interrupted.
    """

    _drivers: ClassVar[type[Exception]]
    """The driver's errors."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self._door: weakref.ref[Exit] | None = None

    def __enter__(self) -> _Transaction:
        try:
            return self._begin()
        except BaseException as error:
            self._end(clean=isinstance(error, Exception))
            if isinstance(error, self._drivers):
                raise self._in_our_words(error) from error
            raise

    __exit__ = _Door()

    def leave(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:  # noqa: ARG002
        clean = False
        try:
            clean = self._finish(error)
        finally:
            try:
                self._end(clean=clean)
            finally:
                self._end(clean=False)
        if error is None:
            self._committed()

    def __del__(self) -> None:
        with suppress(Exception):
            self._end(clean=False)

    def door(self) -> Exit:
        door = self._door() if self._door is not None else None
        if door is None:
            door = partial(Work.leave, self)
            this = weakref.ref(self)

            def dropped(_: object) -> None:
                if (work := this()) is not None:
                    work._end(clean=False)

            self._door = weakref.ref(door, dropped)
        return door

    def _finish(self, error: BaseException | None) -> bool:
        """Whether the connection can be used again."""
        if error is not None:
            if isinstance(error, self._drivers):
                self._end(clean=True)
                raise self._in_our_words(error) from error
            return isinstance(error, Exception)
        try:
            self._commit()
        except Exception as problem:
            self._end(clean=True)
            if isinstance(problem, self._drivers):
                raise self._in_our_words(problem) from problem
            raise
        return True

    @abstractmethod
    def _begin(self) -> _Transaction: ...

    @abstractmethod
    def _commit(self) -> None: ...

    @abstractmethod
    def _committed(self) -> None:
        """Called last, after a commit."""

    @abstractmethod
    def _end(self, *, clean: bool) -> None:
        """Rolls back what is open and gives the connection back; not `clean`: it is in an unknown state."""

    @abstractmethod
    def _in_our_words(self, error: Any) -> TickLakeError:
        """An error of the driver as ours."""
