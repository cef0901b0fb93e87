"""Work on a connection, from acquire to release. The connection is released even if an interrupt comes at any time."""

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


class _ExitHandle:
    """Provides `__exit__` as an object that only the `with` statement holds.

    An exception can come after the block but before the first byte code of `__exit__`, which is then never executed.
    But the `with` statement always drops its `__exit__`, and no traceback keeps that object alive, so a weak reference
    notices it.
    """

    def __get__(self, work: Work[Any] | None, owner: object = None) -> Exit:
        return Work.leave if work is None else work.exit_handle()  # type: ignore[return-value]


class Work(ABC, Generic[_Transaction]):
    """A context manager that begins, commits, and always ends.

    No local variable here may hold an exception: the frame and the exception would keep each other and the connection
    alive. `_end` undoes whatever `_begin` has done so far and can be repeated. It is called twice, in case the first
    call is interrupted.
    """

    _drivers: ClassVar[type[Exception]]
    """The base class of the driver's errors."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self._exit_handle: weakref.ref[Exit] | None = None

    def __enter__(self) -> _Transaction:
        try:
            return self._begin()
        except BaseException as error:
            self._end(clean=isinstance(error, Exception))
            if isinstance(error, self._drivers):
                raise self._translate(error) from error
            raise

    __exit__ = _ExitHandle()

    def leave(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:  # noqa: ARG002
        clean = False
        try:
            try:
                clean = self._finish(error)
            finally:
                try:
                    self._end(clean=clean)
                finally:
                    self._end(clean=False)
            if error is None:
                self._committed()
        finally:
            self._ended()

    def __del__(self) -> None:
        with suppress(Exception):
            self._end(clean=False)

    def exit_handle(self) -> Exit:
        handle = self._exit_handle() if self._exit_handle is not None else None
        if handle is None:
            handle = partial(Work.leave, self)
            this = weakref.ref(self)

            def dropped(_: object) -> None:
                if (work := this()) is not None:
                    work._end(clean=False)

            self._exit_handle = weakref.ref(handle, dropped)
        return handle

    def _finish(self, error: BaseException | None) -> bool:
        """Commits, or handles an error. Returns whether the connection can be used again."""
        if error is not None:
            if isinstance(error, self._drivers):
                self._end(clean=True)
                raise self._translate(error) from error
            return isinstance(error, Exception)
        try:
            self._commit()
        except Exception as problem:
            self._end(clean=True)
            if isinstance(problem, self._drivers):
                raise self._translate(problem) from problem
            raise
        return True

    @abstractmethod
    def _begin(self) -> _Transaction: ...

    @abstractmethod
    def _commit(self) -> None: ...

    @abstractmethod
    def _committed(self) -> None:
        """Called after a commit."""

    @abstractmethod
    def _ended(self) -> None:
        """Called last, after a commit or a rollback."""

    @abstractmethod
    def _end(self, *, clean: bool) -> None:
        """Rolls back and releases the connection. If not `clean`, its state is unknown."""

    @abstractmethod
    def _translate(self, error: Any) -> TickLakeError:
        """Translates an error of the driver."""
