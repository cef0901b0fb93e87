"""Restarts failed services with growing pauses, up to a limit, unless a restart cannot help.

There is no limit while a database is away.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ticklake import defaults, errors
from ticklake.backoff import pause_after
from ticklake.database import OUTAGES
from ticklake.services import Service, State

log = logging.getLogger(__name__)

UNRECOVERABLE = (
    errors.BadMetadata,
    errors.BadSimulationSettings,
    errors.BatchOutOfOrder,
    errors.BindingMissing,
    errors.DatabaseNeeded,
    errors.GroupFillsAnotherTable,
    errors.InvalidName,
    errors.InvalidOption,
    errors.JavaMissing,
    errors.MissingConsumerGroup,
    errors.OtherTableSchema,
    errors.QueueClosed,
    errors.RowsMissing,
    errors.RunClosed,
    errors.RunLeaving,
    errors.RunsNotIndexed,
    errors.SchemaTooNew,
    errors.SparkNeeded,
    errors.StaleRewrite,
    errors.StoredFileConflict,
    errors.TicksOutOfOrder,
    errors.UnknownDatabase,
    errors.UnknownTableFormat,
    errors.UnsafeRunId,
)
"""Errors that need an operator: a restart would fail in the same way."""


@dataclass(frozen=True)
class RestartPolicy:
    """At most `max_restarts` in a row. After `reset_after` seconds without failure, counting starts again."""

    max_restarts: int = defaults.MAX_RESTARTS
    first_delay: float = defaults.RESTART_FIRST_DELAY_MS / 1000
    max_delay: float = defaults.RESTART_MAX_DELAY_MS / 1000
    reset_after: float = defaults.RESTART_RESET_AFTER_MS / 1000

    def delay(self, failures: int, chance: float) -> float:
        """Returns the seconds to wait after `failures` in a row. `chance`, 0 to 1, shortens them by up to a half."""
        longest = pause_after(failures, first=self.first_delay, longest=self.max_delay)
        return longest * (1 - chance / 2)


@dataclass
class _Watched:
    service: Service
    failures: int = 0
    started: float = 0.0
    restart_at: float | None = None
    given_up: bool = False
    stopped_by_operator: bool = False


class Supervisor:
    """Restarts services from its own thread. Operators use it too: a service that they stop stays stopped."""

    def __init__(
        self,
        services: Iterable[Service],
        policy: RestartPolicy | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._policy = policy or RestartPolicy()
        self._clock, self._chance = clock, chance
        self._lock = threading.RLock()
        self._woken = threading.Event()
        self._stopping = False
        self._watched = {service.name: _Watched(service) for service in services}
        self._thread = threading.Thread(target=self._watch, name="supervisor", daemon=True)
        for service in self._services():
            service.on_end = self._woken.set
            service.monitor.counter("restarts")

    def start_all(self) -> None:
        """Starts the services in order, then the supervising thread."""
        for name in self._watched:
            self.start(name)
        self._thread.start()

    def start(self, name: str) -> None:
        """Starts a service now and resets its failures."""
        with self._lock:
            one = self._watched[name]
            one.service.start()
            one.failures, one.started = 0, self._clock()
            one.restart_at, one.given_up, one.stopped_by_operator = None, False, False

    def stop(self, name: str, timeout: float) -> bool:
        """Stops a service until an operator starts it. Returns False if it has not ended after `timeout` seconds."""
        with self._lock:
            one = self._watched[name]
            one.stopped_by_operator = one.service.state is not State.STOPPED
            one.restart_at = None
        return one.service.stop(timeout)

    def stop_all(self, timeout: float) -> list[Service]:
        """Stops all services in reverse order. Returns those that have not ended after `timeout` seconds in total.

        Each service gets half of the remaining time before the next one is stopped, so that a stuck service does not
        keep the others from a clean stop. The rest of the time is spent waiting for all.
        """
        with self._lock:
            self._stopping = True
            self._woken.set()
        deadline = time.monotonic() + timeout
        for service in reversed(self._services()):
            service.ask_to_stop()
            service.join(max(0.0, (deadline - time.monotonic()) / 2))
        late = [service for service in self._services() if not service.join(max(0.0, deadline - time.monotonic()))]
        for service in late:
            log.error("%s did not stop within %g seconds", service.name, timeout)
        return late

    def restart_in(self, name: str) -> float | None:
        """Returns the seconds until a failed service is restarted; None if no restart is planned."""
        with self._lock:
            at = self._watched[name].restart_at
            return None if at is None else max(0.0, at - self._clock())

    @property
    def ended(self) -> bool:
        """Whether all services have ended by themselves or were given up.

        Background services do not count, unless there are no others.
        """
        with self._lock:
            watched = list(self._watched.values())
            counted = [one for one in watched if not one.service.background] or watched
            return all(self._has_ended(one) for one in counted)

    def check(self) -> float | None:
        """Handles failed services. Returns the seconds until the next restart; None if none is planned."""
        with self._lock:
            if self._stopping:
                return None
            for one in self._watched.values():
                if one.service.state is State.ERROR and not one.given_up and not one.stopped_by_operator:
                    self._handle_failure(one)
            waits = [one.restart_at - self._clock() for one in self._watched.values() if one.restart_at is not None]
            return max(0.0, min(waits)) if waits else None

    def _handle_failure(self, one: _Watched) -> None:
        if one.restart_at is None:
            self._schedule(one)
        elif one.restart_at <= self._clock():
            one.restart_at, one.started = None, self._clock()
            one.service.monitor.counter("restarts").add()
            one.service.start()

    def _schedule(self, one: _Watched) -> None:
        now, name, error = self._clock(), one.service.name, one.service.error
        one.failures = 1 if now - one.started >= self._policy.reset_after else one.failures + 1
        if isinstance(error, UNRECOVERABLE):
            one.given_up = True
            log.error("%s is not restarted, because a restart would not help: %s", name, error)
        elif one.failures > self._policy.max_restarts and not isinstance(error, OUTAGES):
            one.given_up = True
            log.error("%s is not restarted after %d restarts in a row: %s", name, self._policy.max_restarts, error)
        else:
            delay = self._policy.delay(one.failures, self._chance())
            one.restart_at = now + delay
            log.warning("%s restarts in %.1f seconds", name, delay)

    def _watch(self) -> None:
        while not self._stopping:
            self._woken.wait(self.check())
            self._woken.clear()

    def _has_ended(self, one: _Watched) -> bool:
        state = one.service.state
        return not one.stopped_by_operator and (state is State.STOPPED or (state is State.ERROR and one.given_up))

    def _services(self) -> list[Service]:
        return [one.service for one in self._watched.values()]
