"""Named points at which a test makes a process fail. In production nothing is armed: it costs a comparison.

`TICKLAKE_FAULT=point:action[:nth]` arms one point for a process and its children. Actions: `kill` (SIGKILL to itself),
`hold` (write the point's name to the file `TICKLAKE_FAULT_MARK` and wait to be killed), `full` (raise "no space left").
"""

from __future__ import annotations

import errno
import itertools
import os
import signal
from pathlib import Path

_point, _, _rest = os.environ.get("TICKLAKE_FAULT", "").partition(":")
_action, _, _nth = _rest.partition(":")
_visits = itertools.count(1)


def reach(point: str) -> None:
    """Fails here if this point is armed and this is its turn."""
    if point == _point and next(_visits) == int(_nth or 1):
        _fail(point)


def _fail(point: str) -> None:
    if _action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif _action == "hold":
        mark = Path(os.environ["TICKLAKE_FAULT_MARK"])
        mark.write_text(point)
        signal.pause()
    elif _action == "full":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
