"""An indexer that follows many runs: it starts one child indexer for each run that has work, a few at a time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Protocol

from ticklake.backoff import pause_after
from ticklake.errors import TickLakeError
from ticklake.indexers.errors import RunsNotIndexed
from ticklake.indexers.runs.turns import PLACES, TURN_SECONDS, Turns
from ticklake.indexers.runs.unfinished import Unfinished
from ticklake.logs import notices
from ticklake.monitoring import Monitor
from ticklake.services import State
from ticklake.text import error_text

log = logging.getLogger(__name__)
_LONGEST_PAUSE = 60.0
_REST = 1.0
_JOIN_SECONDS = 1.0
_MAX_NAMED = 10
"""Names at most this many runs that the indexer continues with after its start."""
MAX_FAILURES = 5
"""With `until_caught_up`, a run that has failed this often in a row is given up."""


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
        until_caught_up: bool = False,
        gauges: Sequence[str] = (),
        own_run: str = "",
    ) -> None:
        """Looks for runs every `interval` seconds. `gauges`: more metrics that are the sums of those of the children.

        `own_run`: the run that the node of this indexer makes. It is new, although the first look may find it.

        With `until_caught_up`, a run without work leaves its place at once, and a run that fails too often is given up.
        """
        self._unfinished, self._make, self._monitor = unfinished, make, monitor
        self._turns = turns or Turns()
        self._interval = interval
        self._until_caught_up = until_caught_up
        self._look_at = 0.0
        self._problem = ""
        self._woken = threading.Event()
        self._children: dict[str, Child] = {}
        self.left: list[str] = []
        """The runs that were active or waiting at the stop. Some of them may have no more work."""
        self._failures: dict[str, int] = {}
        self._not_before: dict[str, float] = {}
        self._unhealthy_since: dict[str, float] = {}
        self._given_up: dict[str, str] = {}
        self._continued: set[str] = set()
        self._own_run = own_run
        for name in ("current_buffer_size", "claimed_batches_pending", "batches_buffered", "ticks_buffered", *gauges):
            monitor.gauge(name, partial(self._sum, name))
        monitor.gauge("runs_active", lambda: len(self._children))
        monitor.gauge("runs_waiting", lambda: len(self._turns.waiting))
        monitor.gauge("runs_failing", lambda: len(self._failures))

    @property
    def children(self) -> dict[str, Child]:
        return dict(self._children)

    def step(self, now: float) -> bool:
        """Ends, finds and begins. Returns whether any run is at work or waiting, or was not checked."""
        self._collect(now)
        if now >= self._look_at:
            self._find(now)
            self._look_at = now + self._interval
        idle = self._idle()
        for run_id in {*self._turns.to_end(now, idle), *self._to_end_early(now, idle)}:
            self._children[run_id].ask_to_stop()
        for run_id in self._turns.begin(now):
            self._begin(run_id)
        self._monitor.healthy = not self._problem and self._can_work()
        is_busy = bool(self._children or self._turns.waiting or self._not_before)
        return is_busy or bool(self._problem) or not self._unfinished.complete

    def check(self) -> None:
        """Raises `RunsNotIndexed` if runs were given up."""
        if self._given_up:
            run_id, error = next(iter(self._given_up.items()))
            raise RunsNotIndexed(count=len(self._given_up), attempts=MAX_FAILURES, run_id=run_id, error=error)

    def _to_end_early(self, now: float, idle: Collection[str]) -> list[str]:
        """Returns the runs without work, and those that have failed for a whole turn: others do not wait for them."""
        unhealthy = [run_id for run_id, child in self._children.items() if not child.monitor.healthy]
        self._unhealthy_since = {run_id: self._unhealthy_since.get(run_id, now) for run_id in unhealthy}
        if not self._until_caught_up:
            return []
        return [*idle, *(run_id for run_id, since in self._unhealthy_since.items() if now - since >= TURN_SECONDS)]

    def _can_work(self) -> bool:
        """Returns False if the newest run fails, or many runs and none succeeds. Single old runs do not matter."""
        failing = {*self._failures, *self._unhealthy_since}
        if self._unfinished.newest in failing:
            return False
        return len(failing) < PLACES or not failing.issuperset(self._children)

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
            found = self._unfinished.look(now, {*self._children, *self._turns.waiting, *self._given_up})
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
        self._say_if_continued(run_id)
        child.start()

    def _say_if_continued(self, run_id: str) -> None:
        """Says once that a run was there before the indexer and is not finished."""
        if run_id in (*self._continued, self._own_run) or not self._unfinished.was_there_first(run_id):
            return
        self._continued.add(run_id)
        if len(self._continued) <= _MAX_NAMED:
            notices.info("Continuing with run %s, which began before this indexer", run_id)
        elif len(self._continued) == _MAX_NAMED + 1:
            notices.info("Continuing with more runs that were not finished: `ticklake top` shows them")

    def _collect(self, now: float) -> None:
        """Frees the places of children that have ended."""
        for run_id, child in list(self._children.items()):
            if child.state in (State.STOPPED, State.ERROR) and child.join(_JOIN_SECONDS):
                self._end(run_id, child, now)

    def _end(self, run_id: str, child: Child, now: float) -> None:
        del self._children[run_id]
        self._turns.end(run_id)
        child.release()
        self._unhealthy_since.pop(run_id, None)
        if child.error is None and child.monitor.healthy:
            self._failures.pop(run_id, None)
            self._not_before[run_id] = now + _REST  # its messages may have to wait for another attempt
        else:
            self._failures[run_id] = self._failures.get(run_id, 0) + 1
            if self._until_caught_up and self._failures[run_id] >= MAX_FAILURES:
                self._given_up[run_id] = self._reason(child)
                return
            self._not_before[run_id] = now + pause_after(self._failures[run_id], longest=_LONGEST_PAUSE)
        self._unfinished.ask_again(run_id, self._not_before[run_id])

    def _reason(self, child: Child) -> str:
        if child.error is not None:
            return error_text(child.error)
        last = list(self._monitor.errors)[-1:]
        return last[0].message if last else "its flushes fail"

    def pause(self) -> None:
        for child in self.children.values():
            if child.state is State.RUNNING:
                child.pause()

    def resume(self) -> None:
        for child in self.children.values():
            if child.state is State.PAUSED:
                child.resume()
