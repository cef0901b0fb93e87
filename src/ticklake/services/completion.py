"""Records the end of a run once, after its last tick is durable."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial

from ticklake import faults
from ticklake.contracts import FORMAT_VERSION, RunCompleted
from ticklake.defaults import RUN_TOPIC
from ticklake.services.announcing import Announcer
from ticklake.services.base import Service
from ticklake.services.queue import TickQueue
from ticklake.services.retry import Retry
from ticklake.storage import Storage
from ticklake.storage.errors import BadFile
from ticklake.topics import Run

log = logging.getLogger(__name__)


class CompletionService(Service):
    """Waits until the producer has closed the queue and every tick is written, then records the end of the run.

    If the producer failed or a tick could not be written, the end is not recorded.
    """

    def __init__(
        self,
        run: Run,
        storage: Storage,
        queue: TickQueue,
        retry: Retry | None = None,
        *,
        topic: str = RUN_TOPIC,
        name: str = "completion-service",
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(name)
        self._run = run
        self._storage = storage
        self._queue = queue
        self._retry = retry or Retry()
        self._clock = clock
        self._end: RunCompleted | None = None
        self._completed = False
        self._announcer = Announcer(run, topic, self.monitor, self._retry)

    def run(self) -> None:
        while self.proceed() and not self._queue.wait_finished(unless=self.interrupted):
            pass
        if self._queue.finished and self._queue.last_tick is not None and not self._completed:
            self._complete(self._queue.last_tick)

    def wake(self) -> None:
        self._queue.wake()

    def _complete(self, last_tick: int) -> None:
        write = partial(self._write, last_tick)
        end = self._retry.call("Writing the end of the run", write, self.monitor, "write_retries")
        if not self._announcer:
            self._announcer.add("the end of the run", end)
        faults.reach("completion.publish")
        with closing(self._announcer):
            self._announcer.send_all(self.wait)
        self._completed = not self._announcer
        log.info("run %s is complete: its last tick is %d", self._run.id, last_tick)

    def _write(self, last_tick: int) -> RunCompleted:
        # Create it once: a restart, or a start after `ticklake end`, must write the same bytes again.
        if self._end is None:
            known = self._known()
            same = known is not None and known.last_tick == last_tick
            self._end = known if same else end_of(self._run.id, last_tick, self._clock)
        assert self._end is not None  # noqa: S101
        self._storage.write_completion(self._end)
        return self._end

    def _known(self) -> RunCompleted | None:
        try:
            return self._storage.read_completion(self._run.id)
        except BadFile:
            return None


def end_of(run_id: str, last_tick: int, clock: Callable[[], float] = time.time) -> RunCompleted:
    return RunCompleted(
        simulation_run_id=run_id,
        last_tick=last_tick,
        written_at_ms=int(clock() * 1000),
        format_version=FORMAT_VERSION,
    )
