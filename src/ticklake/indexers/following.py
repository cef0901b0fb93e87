"""An indexer that follows many runs: it starts one child indexer for each run that has work, a few at a time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Protocol

from ticklake.backoff import pause_after
from ticklake.errors import TickLakeError
from ticklake.indexers.run_turns import Turns
from ticklake.indexers.runs_with_work import Unfinished
from ticklake.monitoring import Monitor
from ticklake.services import State
from ticklake.text import error_text

log = logging.getLogger(__name__)
_LONGEST_PAUSE = 60.0
_REST = 1.0
_JOIN_SECONDS = 1.0


class Child(Protocol):
    """An indexer of one run, in its own thread."""

    monitor: Monitor
    error: BaseException | None
    on_end: Callable[[], None]

    @property
    def state(self) -> State: ...

    @property
    def stopping(self) -> bool: ...

    @property
    def idle_seconds(self) -> float | None:
        """Returns for how long there has been nothing to do; None while there is work."""

    def start(self) -> None: ...

    def ask_to_stop(self) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def join(self, timeout: float | None = None) -> bool: ...

    def release(self) -> None:
        """Closes what the child alone has used."""


class Following:
    """The children of one indexer. Used by the indexer's thread, except for `pause`, `resume` and `wake`."""

    def __init__(
        self,
        unfinished: Unfinished,
        make: Callable[[str], Child],
        monitor: Monitor,
        turns: Turns | None = None,
        interval: float = 0.0,
    ) -> None:
        """Looks for runs every `interval` seconds."""
        self._unfinished, self._make, self._monitor = unfinished, make, monitor
        self._turns = turns or Turns()
        self._interval = interval
        self._look_at = 0.0
        self._problem = ""
        self._woken = threading.Event()
        self._children: dict[str, Child] = {}
        self.left: list[str] = []
        """The runs that were active or waiting at the stop. Some of them may have no more work."""
        self._failures: dict[str, int] = {}
        self._not_before: dict[str, float] = {}
        for name in ("current_buffer_size", "claimed_batches_pending", "batches_buffered", "ticks_buffered"):
            monitor.gauge(name, partial(self._sum, name))
        monitor.gauge("runs_active", lambda: len(self._children))
        monitor.gauge("runs_waiting", lambda: len(self._turns.waiting))
        monitor.gauge("runs_failing", lambda: len(self._failures))

    @property
    def children(self) -> dict[str, Child]:
        return dict(self._children)

    def step(self, now: float, *, end_idle: bool = False) -> bool:
        """Ends, finds and begins. Returns whether any run is at work or waiting, or was not checked.

        `end_idle`: a run without work leaves its place, even if no other run needs it.
        """
        self._collect(now)
        if now >= self._look_at:
            self._find(now)
            self._look_at = now + self._interval
        idle = self._idle()
        for run_id in {*self._turns.to_end(now, idle), *(idle if end_idle else ())}:
            self._children[run_id].ask_to_stop()
        for run_id in self._turns.begin(now):
            self._begin(run_id)
        healthy = all(one.monitor.healthy for one in self._children.values())
        self._monitor.healthy = healthy and not self._failures and not self._problem
        is_busy = bool(self._children or self._turns.waiting or self._not_before)
        return is_busy or bool(self._problem) or not self._unfinished.complete

    def rest(self, seconds: float) -> None:
        """Waits until the time is over, a child has ended, or `wake` is called."""
        self._woken.wait(seconds)
        self._woken.clear()

    def wake(self) -> None:
        self._woken.set()

    def stop(self) -> None:
        """Asks all children to finish what they hold, and waits for them."""
        self.left = sorted({*self._children, *self._turns.waiting})
        for child in self._children.values():
            child.ask_to_stop()
        for child in self._children.values():
            child.join()
            child.release()
        self._children.clear()

    def _sum(self, gauge: str) -> float:
        found = (child.monitor.gauges.get(gauge) for child in self.children.values())
        return sum(read() for read in found if read is not None)

    def _idle(self) -> dict[str, float]:
        found = {run_id: child.idle_seconds for run_id, child in self._children.items()}
        return {run_id: seconds for run_id, seconds in found.items() if seconds is not None}

    def _find(self, now: float) -> None:
        try:
            found = self._unfinished.look(now, {*self._children, *self._turns.waiting})
        except (TickLakeError, OSError) as error:
            if error_text(error) != self._problem:
                log.warning("Cannot look for runs, trying again: %s", error)
            self._problem = error_text(error)
            self._monitor.errors.record("RUNS_UNKNOWN", error)
            return
        self._problem = ""
        self._not_before = {run_id: then for run_id, then in self._not_before.items() if then > now}
        for run_id in found:
            if run_id in self._not_before:
                self._unfinished.ask_again(run_id, self._not_before[run_id])
            else:
                self._turns.request(run_id)
        self._leave_those_without_files()
        for run_id in [one for one in self._failures if one not in self._children]:
            if self._unfinished.is_finished(run_id):
                del self._failures[run_id]

    def _leave_those_without_files(self) -> None:
        """Ends runs that the storage no longer has: they were deleted, or its disk is not mounted."""
        for run_id in self._turns.waiting:
            if run_id not in self._unfinished.known:
                self._turns.withdraw(run_id)
        for run_id, child in self._children.items():
            if run_id not in self._unfinished.known and not child.stopping:
                self._monitor.errors.record("RUN_GONE", f"run {run_id} is not in the storage any more")
                log.warning("Run %s is not in the storage any more: its work ends", run_id)
                child.ask_to_stop()

    def _begin(self, run_id: str) -> None:
        child = self._children[run_id] = self._make(run_id)
        child.on_end = self.wake
        log.info("Working on run %s", run_id)
        child.start()

    def _collect(self, now: float) -> None:
        """Frees the places of children that have ended."""
        for run_id, child in list(self._children.items()):
            if child.state in (State.STOPPED, State.ERROR) and child.join(_JOIN_SECONDS):
                self._end(run_id, child, now)

    def _end(self, run_id: str, child: Child, now: float) -> None:
        del self._children[run_id]
        self._turns.end(run_id)
        child.release()
        if child.error is None and child.monitor.healthy:
            self._failures.pop(run_id, None)
            self._not_before[run_id] = now + _REST  # its messages may have to wait for another attempt
        else:
            self._failures[run_id] = self._failures.get(run_id, 0) + 1
            self._not_before[run_id] = now + pause_after(self._failures[run_id], longest=_LONGEST_PAUSE)
        self._unfinished.ask_again(run_id, self._not_before[run_id])

    def pause(self) -> None:
        for child in self.children.values():
            if child.state is State.RUNNING:
                child.pause()

    def resume(self) -> None:
        for child in self.children.values():
            if child.state is State.PAUSED:
                child.resume()
