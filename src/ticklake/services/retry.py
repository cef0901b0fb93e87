"""Retries a failed action with growing pauses, up to a limit."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ticklake import defaults
from ticklake.backoff import pause_after
from ticklake.monitoring import Monitor
from ticklake.services.errors import RunClosed, RunLeaving, WriteKeepsFailing
from ticklake.storage.errors import BatchOutOfOrder, StoredFileConflict

log = logging.getLogger(__name__)
_Result = TypeVar("_Result")

HOPELESS = (BatchOutOfOrder, RunClosed, RunLeaving, StoredFileConflict)
"""Errors that a retry would meet again."""


@dataclass(frozen=True)
class Retry:
    """The number of attempts and the pauses between them. Each pause doubles, up to `max_delay` seconds."""

    attempts: int = defaults.WRITE_ATTEMPTS
    first_delay: float = defaults.WRITE_FIRST_DELAY_MS / 1000
    max_delay: float = defaults.WRITE_MAX_DELAY_MS / 1000
    sleep: Callable[[float], None] = time.sleep

    def delay(self, failures: int) -> float:
        return pause_after(failures, first=self.first_delay, longest=self.max_delay)

    def call(
        self,
        what: str,
        action: Callable[[], _Result],
        monitor: Monitor,
        counter: str,
        at_once: tuple[type[Exception], ...] = (),
    ) -> _Result:
        """Returns the result of `action` or raises `WriteKeepsFailing`. A stop does not interrupt it.

        Errors of `at_once` are not retried here.
        """
        at_once = (*HOPELESS, *at_once)
        for attempt in range(1, self.attempts):
            try:
                return action()
            except at_once:
                raise
            except Exception as error:
                monitor.counter(counter).add()
                monitor.errors.record(counter.upper(), error, what)
                log.warning("%s failed, attempt %d of %d: %s", what, attempt, self.attempts, error)
                self.sleep(self.delay(attempt))
        try:
            return action()
        except at_once:
            raise
        except Exception as error:
            raise WriteKeepsFailing(what=what, attempts=self.attempts, error=error) from error
