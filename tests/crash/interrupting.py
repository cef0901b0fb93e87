"""An interrupt at every byte code: what a signal handler that raises does by chance, one place after the other."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import ticklake

_SILENT = ("__del__", "dropped", "died")
"""Functions out of which Python lets no exception."""

OURS = str(Path(ticklake.__file__).parent)


class Interrupt(BaseException):
    """Like KeyboardInterrupt: no `except Exception` stops it."""


class _Tracer:
    """Raises at the n-th byte code of the files that it looks at."""

    def __init__(self, at: int, where: str, signals: bool) -> None:
        self._left = at
        self._where = where
        self._signals = signals
        self._last = ""
        self.raised = False

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(self._where) or _silent(frame):
            return None
        frame.f_trace_opcodes = True
        return self._step

    def _step(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "opcode" and (not self._signals or self._deliverable(frame)):
            self._left -= 1
            if self._left == 0:
                sys.settrace(None)
                self.raised = True
                raise Interrupt
        return self._step

    def _deliverable(self, frame: FrameType) -> bool:
        """Where CPython runs the handlers of signals: at the start of a function, after a call, and in loops."""
        code = frame.f_code.co_code
        name = dis.opname[code[frame.f_lasti]]
        last, self._last = self._last, name
        if name in ("RESUME", "JUMP_BACKWARD"):
            return True
        # The handler runs as a part of the call. A trace function runs only before the next byte code; if that is where
        # a `with` block ends, the interpreter would still be in the block, and we are not.
        following = [dis.opname[code[at]] for at in range(frame.f_lasti, len(code), 2) if code[at]][:5]
        leaves = following[:3] == ["LOAD_CONST"] * 3 or following[1:4] == ["LOAD_CONST"] * 3
        return last.startswith("CALL") and not leaves


def _silent(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name in _SILENT:
            return True
        frame = frame.f_back
    return False


def everywhere(
    act: Callable[[], object], where: str = OURS, *, every: int = 1, signals: bool = False
) -> Iterator[BaseException | None]:
    """Does `act` again and again, each time with the interrupt one byte code later, until it is not met any more.

    Yields while the interrupt is being handled. `where`: the beginning of the names of the files in which to raise.
    `signals`: only at those byte codes at which CPython may run a signal's handler.
    """
    at = 0
    before = sys.gettrace()
    while True:
        at += every
        try:
            tracer = _Tracer(at, where, signals)
            sys.settrace(tracer)
            try:
                act()
            finally:
                sys.settrace(before)
        except Interrupt as error:
            yield error
        else:
            if not tracer.raised:  # Python lets nothing out of a destructor
                return
