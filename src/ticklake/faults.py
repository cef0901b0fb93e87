"""Named points at which a test makes a process fail. In production no point is armed, and each costs one comparison.

`TICKLAKE_FAULT=point:action[:nth]` arms one point for a process and its children. Actions: `kill` (SIGKILL to itself),
`hold` (write the point's name to the file `TICKLAKE_FAULT_MARK` and wait to be killed), `full` (raise "no space left").
`TICKLAKE_FAULT=*:trace` never fails and writes the name of every point that is reached to that file.

Every SQL statement has two points, `sql.<package>.<statement>.before` and `.after`. Every commit has
`database.commit.before` and `.after`. Writes to files name their points in the code.
"""

from __future__ import annotations

import errno
import itertools
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

armed = False
_point = _action = ""
_nth = 1
_visits = itertools.count(1)


def arm(text: str) -> None:
    """Arms a point as `TICKLAKE_FAULT` does at the start of a process. An empty text disarms it."""
    global armed, _point, _action, _nth, _visits
    _point, _, rest = text.partition(":")
    _action, _, nth = rest.partition(":")
    armed, _nth, _visits = bool(text), int(nth or 1), itertools.count(1)


def reach(point: str) -> None:
    """Fails if this point is armed and this is the n-th visit."""
    if armed and (_point == "*" or (point == _point and next(_visits) == _nth)):
        _fail(point)


@contextmanager
def around(act: str) -> Iterator[None]:
    """Reaches a point before a write and another one after it succeeds."""
    reach(f"{act}.before")
    yield
    reach(f"{act}.after")


def _fail(point: str) -> None:
    if _action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif _action == "hold":
        _mark(point)
        signal.pause()
    elif _action == "full":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    elif _action == "trace":
        _mark(f"{point}\n")


def _mark(text: str) -> None:
    descriptor = os.open(os.environ["TICKLAKE_FAULT_MARK"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.write(descriptor, text.encode())
    os.close(descriptor)


arm(os.environ.get("TICKLAKE_FAULT", ""))
