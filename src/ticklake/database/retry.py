"""Retries while the database does not answer: after a restart, while it is read-only or unreachable."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from ticklake import defaults
from ticklake.backoff import pause_after
from ticklake.database.errors import DatabaseUnavailable, TransactionAborted
from ticklake.errors import TickLakeError

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0
MOST_ABORTED = 5
"""The number of attempts if the database aborts the transaction, for example because of a deadlock."""


def retry_while_unavailable(
    act: Callable[[], _Result],
    *,
    on_error: Callable[[TickLakeError], object],
    seconds: float = defaults.SEND_PATIENCE_SECONDS,
    pause: Callable[[float], object] = time.sleep,
) -> _Result:
    """Repeats `act` until the database answers; raises after `seconds`. It must be harmless to repeat `act`.

    `on_error` is called with each failure and must record it. The warning is logged here.
    """
    deadline = time.monotonic() + seconds
    failures = aborted = 0
    while True:
        try:
            return act()
        except (DatabaseUnavailable, TransactionAborted) as error:
            on_error(error)
            failures += 1
            aborted += isinstance(error, TransactionAborted)
            length = pause_after(failures, first=FIRST_PAUSE, longest=LONGEST_PAUSE)
            if aborted == MOST_ABORTED or time.monotonic() + length > deadline:
                raise
            _log.warning("Waiting for the database: %s", error)
            pause(length)
