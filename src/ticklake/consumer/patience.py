"""Waits through an outage of the database, but not for ever."""

from __future__ import annotations

import time
from collections.abc import Callable

from ticklake.database import OUTAGES
from ticklake.database.errors import TransactionAborted
from ticklake.errors import TickLakeError

INTERRUPTIONS = (*OUTAGES, TransactionAborted)
"""Temporary errors of statements that are not the user's."""

PATIENCE_SECONDS = 60.0
OUTAGE_PAUSE = 0.5
SAME_OUTAGE_SECONDS = 180.0
"""Errors are of the same outage if less time is between them. An attempt can wait for the database for a minute."""


class Patience:
    """Pauses after each error. Raises the error if there was no progress for a minute since the first one."""

    def __init__(
        self,
        seconds: float | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self._seconds = PATIENCE_SECONDS if seconds is None else seconds
        self._clock = clock
        self._pause = pause
        self._first: float | None = None
        self._last = 0.0

    def renew(self) -> None:
        """To be called after progress."""
        self._first = None

    def wait(self, error: TickLakeError) -> None:
        now = self._clock()
        if self._first is None or now - self._last > SAME_OUTAGE_SECONDS:
            self._first = now
        self._last = now
        if now - self._first >= self._seconds:
            raise error
        self._pause(OUTAGE_PAUSE)
