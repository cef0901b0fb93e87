"""Indexing, compaction or vacuum in a process of its own that goes on after a held fault point on SIGUSR1.

`history_child.py index|compact|vacuum|once ROOT RUN`, as `compaction_child.py`.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from pathlib import Path

import compaction_child


def go_on(*_: object) -> None:
    """`hold` waits for a signal with a handler, in whichever thread."""
    for thread in threading.enumerate():
        if thread.ident is not None:
            signal.pthread_kill(thread.ident, signal.SIGUSR2)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    signal.signal(signal.SIGUSR1, go_on)
    signal.signal(signal.SIGUSR2, lambda *_: None)
    compaction_child.main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
