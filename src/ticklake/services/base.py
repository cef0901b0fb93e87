"""The base of services: a thread that can be started, stopped, paused and resumed."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import StrEnum
from types import TracebackType
from typing import ClassVar, Self

from ticklake.logs import log_service
from ticklake.monitoring import METRICS_WINDOW_SECONDS, Monitor
from ticklake.services.errors import WrongServiceState
from ticklake.text import error_text

log = logging.getLogger(__name__)
_JOIN_SECONDS = 5.0


class State(StrEnum):
    STOPPED = "stopped"
    RUNNING = "running"
    PAUSED = "paused"
    ERROR = "error"


class Service(ABC):
    """Subclasses implement `run`: a loop `while self.proceed(): …` that ends by itself or on a stop.

    If `run` raises, the service is in the error state, and `error` holds the exception until the next start. In any
    case `on_end` is called in the service's thread.
    """

    background: ClassVar[bool] = False
    """Whether the node may end while this service is still running."""

    def __init__(self, name: str, metrics_window_seconds: float = METRICS_WINDOW_SECONDS) -> None:
        self.name = name
        self.monitor = Monitor(name, metrics_window_seconds)
        self.error: BaseException | None = None
        self.on_end: Callable[[], None] = lambda: None
        self._state = State.STOPPED
        self._stopping = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    @abstractmethod
    def run(self) -> None:
        """Does the work, in the service's own thread."""

    def wake(self) -> None:  # noqa: B027
        """Wakes up `run` if it is waiting, so that it checks `interrupted`. Called on stop and on pause."""

    @property
    def state(self) -> State:
        """Stopped, running, paused or error."""
        return self._state

    @property
    def stopping(self) -> bool:
        """Whether a stop was requested."""
        return self._stopping

    def interrupted(self) -> bool:
        """Returns whether a wait for work should end, because a stop or a pause was requested."""
        return self._stopping or self._state is State.PAUSED

    def start(self) -> None:
        """Starts the service in its own thread. Raises `WrongServiceState` if it is already running."""
        self._join_ended_thread()
        with self._changed:
            self._require("start", State.STOPPED, State.ERROR)
            self._state, self._stopping, self.error = State.RUNNING, False, None
            self.monitor.healthy = True
            self._thread = threading.Thread(target=self._run_thread, name=self.name, daemon=True)
            self._thread.start()
        log.info("%s started", self.name)

    def stop(self, timeout: float = 30.0) -> bool:
        """Requests a stop and waits. Returns False if the service has not ended after `timeout` seconds."""
        self.ask_to_stop()
        ended = self.join(timeout)
        if not ended:
            self.monitor.errors.record("STOP_TIMED_OUT", f"did not stop within {timeout:g} seconds")
            log.warning("%s did not stop within %g seconds", self.name, timeout)
        return ended

    def ask_to_stop(self) -> None:
        """Requests a stop without waiting. The service finishes its current work first."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self.wake()

    def pause(self) -> None:
        """Pauses the service after its current work, until `resume()` or a stop."""
        with self._changed:
            self._require("pause", State.RUNNING)
            self._state = State.PAUSED
        self.wake()
        log.info("%s paused", self.name)

    def resume(self) -> None:
        """Resumes a paused service."""
        with self._changed:
            self._require("resume", State.PAUSED)
            self._state = State.RUNNING
            self._changed.notify_all()
        log.info("%s resumed", self.name)

    def join(self, timeout: float | None = None) -> bool:
        """Waits until the service has ended. Returns False after the timeout."""
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return thread is None
        thread.join(timeout)
        return not thread.is_alive()

    def proceed(self) -> bool:
        """Waits while paused. Returns False if the service should end."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or self._state is not State.PAUSED)
            return not self._stopping

    def wait(self, seconds: float) -> bool:
        """Sleeps until the time is over or a stop is requested. Returns False if the service should end."""
        with self._changed:
            return not self._changed.wait_for(lambda: self._stopping, seconds)

    def _run_thread(self) -> None:
        log_service.set(self.name)
        started = time.monotonic()
        try:
            self.run()
        except BaseException as error:
            self._fail(error)
        else:
            self._end_as(State.STOPPED)
            log.info("%s stopped after %.1f seconds", self.name, time.monotonic() - started)
        self.on_end()

    def _fail(self, error: BaseException) -> None:
        self.error = error
        self.monitor.healthy = False
        self.monitor.errors.record("SERVICE_FAILED", error, type(error).__name__)
        log.error("%s failed: %s", self.name, error_text(error))
        self._end_as(State.ERROR)

    def _end_as(self, state: State) -> None:
        with self._changed:
            self._state = state

    def _join_ended_thread(self) -> None:
        """Waits for the thread of an ended service, which may still be in `on_end`."""
        if self._state in (State.STOPPED, State.ERROR):
            self.join(_JOIN_SECONDS)

    def _require(self, action: str, *allowed: State) -> None:
        alive = self._thread is not None and self._thread.is_alive()
        if self._state not in allowed or (action == "start" and alive):
            raise WrongServiceState(name=self.name, action=action, state=self._state, allowed=" or ".join(allowed))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
