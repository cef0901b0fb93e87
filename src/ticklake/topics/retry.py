"""Going on by itself when the database does not answer: restarted, turned read-only, cut off."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from ticklake.backoff import pause_after
from ticklake.database.errors import DatabaseUnavailable, TransactionAborted
from ticklake.errors import TickLakeError

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")
PATIENCE_SECONDS = 60.0
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0
MOST_ABORTED = 5
"""So often a transaction that the database has ended is begun again: a deadlock, a lock that could not be had."""


def patiently(
    act: Callable[[], _Result],
    *,
    tell: Callable[[TickLakeError], object],
    seconds: float = PATIENCE_SECONDS,
    pause: Callable[[float], object] = time.sleep,
) -> _Result:
    """Repeat `act`, which must be harmless to repeat, until the database answers; raise after `seconds`.

    `tell` hears of each failure, to record it: the warning is logged here.
    """
    deadline = time.monotonic() + seconds
    failures = aborted = 0
    while True:
        try:
            return act()
        except (DatabaseUnavailable, TransactionAborted) as error:
            tell(error)
            failures += 1
            aborted += isinstance(error, TransactionAborted)
            length = pause_after(failures, first=FIRST_PAUSE, longest=LONGEST_PAUSE)
            if aborted == MOST_ABORTED or time.monotonic() + length > deadline:
                raise
            _log.warning("Waiting for the database: %s", error)
            pause(length)
