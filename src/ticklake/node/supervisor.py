"""Starts again what died: after a pause that grows, so many times in a row, unless that cannot help."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ticklake import defaults, errors
from ticklake.backoff import pause_after
from ticklake.services import Service, State

log = logging.getLogger(__name__)

HOPELESS = (
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
    errors.SchemaTooNew,
    errors.SparkNeeded,
    errors.StaleRewrite,
    errors.StoredFileConflict,
    errors.TicksOutOfOrder,
    errors.UnknownDatabase,
    errors.UnknownTableFormat,
    errors.UnsafeRunId,
)
"""Mistakes that only a person can mend: the next start would end the same way."""


@dataclass(frozen=True)
class RestartPolicy:
    """At most `max_restarts` in a row; a service that lived `reset_after` seconds starts counting anew."""

    max_restarts: int = defaults.MAX_RESTARTS
    first_delay: float = defaults.RESTART_FIRST_DELAY_MS / 1000
    max_delay: float = defaults.RESTART_MAX_DELAY_MS / 1000
    reset_after: float = defaults.RESTART_RESET_AFTER_MS / 1000

    def delay(self, failures: int, chance: float) -> float:
        """Seconds before the next start after so many failures in a row; `chance`, 0 to 1, spreads them by a half."""
        longest = pause_after(failures, first=self.first_delay, longest=self.max_delay)
        return longest * (1 - chance / 2)


@dataclass
class _Watched:
    service: Service
    failures: int = 0
    started: float = 0.0
    due: float | None = None
    given_up: bool = False
    by_hand: bool = False


class Supervisor:
    """Watches over services from a thread of its own. Their operators go through it: what one stops stays stopped."""

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
        self._over = False
        self._watched = {service.name: _Watched(service) for service in services}
        self._thread = threading.Thread(target=self._watch, name="supervisor", daemon=True)
        for service in self._services():
            service.on_end = self._woken.set
            service.monitor.counter("restarts")

    def start_all(self) -> None:
        """Starts the services in their order, and the watch over them."""
        for name in self._watched:
            self.start(name)
        self._thread.start()

    def start(self, name: str) -> None:
        """Starts one, now; its failures so far are forgiven."""
        with self._lock:
            one = self._watched[name]
            one.service.start()
            one.failures, one.started = 0, self._clock()
            one.due, one.given_up, one.by_hand = None, False, False

    def stop(self, name: str, timeout: float) -> bool:
        """Stops one until somebody starts it. False where it is still at it after `timeout` seconds."""
        with self._lock:
            one = self._watched[name]
            one.by_hand = one.service.state is not State.STOPPED
            one.due = None
        return one.service.stop(timeout)

    def stop_all(self, timeout: float) -> list[Service]:
        """Stops the last started first; those that are still at it after `timeout` seconds altogether.

        One that is stuck gets half of the time that is left before the next is asked, so it does not cost the others
        their clean stop, and the rest of it in the end.
        """
        with self._lock:
            self._over = True
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
        """Seconds until a service that died is started again; None where it will not be."""
        with self._lock:
            due = self._watched[name].due
            return None if due is None else max(0.0, due - self._clock())

    @property
    def ended(self) -> bool:
        """Whether nothing is at work any more and nothing will be: all ended by themselves, or were given up.

        A background duty does not count, unless there is nothing else.
        """
        with self._lock:
            watched = list(self._watched.values())
            counted = [one for one in watched if not one.service.background] or watched
            return all(self._has_ended(one) for one in counted)

    def look(self) -> float | None:
        """Deals with what died since the last look; the seconds until the next restart is due, if one is."""
        with self._lock:
            if self._over:
                return None
            for one in self._watched.values():
                if one.service.state is State.ERROR and not one.given_up and not one.by_hand:
                    self._deal_with(one)
            waits = [one.due - self._clock() for one in self._watched.values() if one.due is not None]
            return max(0.0, min(waits)) if waits else None

    def _deal_with(self, one: _Watched) -> None:
        if one.due is None:
            self._schedule(one)
        elif one.due <= self._clock():
            one.due, one.started = None, self._clock()
            one.service.monitor.counter("restarts").add()
            one.service.start()

    def _schedule(self, one: _Watched) -> None:
        now, name, error = self._clock(), one.service.name, one.service.error
        one.failures = 1 if now - one.started >= self._policy.reset_after else one.failures + 1
        if isinstance(error, HOPELESS):
            one.given_up = True
            log.error("%s stays as it is, another start would not help: %s", name, error)
        elif one.failures > self._policy.max_restarts:
            one.given_up = True
            log.error("%s stays as it is after %d restarts in a row: %s", name, self._policy.max_restarts, error)
        else:
            delay = self._policy.delay(one.failures, self._chance())
            one.due = now + delay
            log.warning("%s is started again in %.1f seconds", name, delay)

    def _watch(self) -> None:
        while not self._over:
            self._woken.wait(self.look())
            self._woken.clear()

    def _has_ended(self, one: _Watched) -> bool:
        state = one.service.state
        return not one.by_hand and (state is State.STOPPED or (state is State.ERROR and one.given_up))

    def _services(self) -> list[Service]:
        return [one.service for one in self._watched.values()]
