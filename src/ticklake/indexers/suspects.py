"""Batches that may end the process that works on them. They are indexed alone, and not at once after a start.

They are never given up for that: a process may also be killed from outside, or by the work of another indexer.
"""

from __future__ import annotations

import logging
import random
import time

from ticklake.backoff import pause_after
from ticklake.monitoring import Monitor

log = logging.getLogger(__name__)

LONGEST = 60.0
"""At most so many seconds after the start of the process are for other batches."""
STARTED = time.monotonic()
"""Not the time at which a source was opened: an indexer of many runs opens them again every few seconds."""
_MANY_LOSSES = 3


class Suspects:
    """Decides when a source of batches tries its suspects."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor

    def seconds_until_try(self, losses: int) -> float:
        """Returns how long a batch must wait that was lost alone this often.

        The time is random, so that of several suspects another one is tried first in each life.
        """
        pause = pause_after(max(1, losses), longest=LONGEST)
        left = STARTED + pause / 2 - time.monotonic()
        return left + random.uniform(0, pause / 2) if left > 0 else 0.0  # noqa: S311  no secret

    def report(self, key: str, losses: int, claims: int) -> None:
        """Reports that a batch is tried that may be the reason why this process is always restarted."""
        if losses >= _MANY_LOSSES:
            reason = f"it may have ended earlier processes, because it was claimed {claims} times"
            self._monitor.errors.record("SUSPECT_BATCH", reason, key)
            log.warning(
                "Batch %s is indexed alone: %s. If it ends this process too, move the file out of the storage: then it "
                "fails, and you can try it again later",
                key,
                reason,
            )
