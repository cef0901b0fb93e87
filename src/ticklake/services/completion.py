"""Records the end of a run once, after its last tick is durable. Closes the earlier runs of the same producer."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial

from ticklake import faults
from ticklake.contracts import RunCompleted
from ticklake.defaults import RUN_TOPIC
from ticklake.lives import Step, decide, life_of
from ticklake.services.announcing import Announcer
from ticklake.services.base import Service
from ticklake.services.closing import closed_error, end_of
from ticklake.services.earlier import EarlierRuns
from ticklake.services.queue import TickQueue
from ticklake.services.retry import Retry
from ticklake.storage import Storage
from ticklake.storage.errors import BadFile, StoredFileConflict
from ticklake.topics import Run

log = logging.getLogger(__name__)
_AGAIN_SECONDS = 30.0


class CompletionService(Service):
    """Waits until the producer has closed the queue and every tick is written, then records the end of the run.

    If the producer failed or a tick could not be written, the end is not recorded. Then the next life of the producer
    closes the run: `earlier` has such runs.
    """

    def __init__(
        self,
        run: Run,
        storage: Storage,
        queue: TickQueue,
        retry: Retry | None = None,
        *,
        topic: str = RUN_TOPIC,
        earlier: EarlierRuns | None = None,
        name: str = "completion-service",
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(name)
        self._run = run
        self._storage = storage
        self._queue = queue
        self._retry = retry or Retry()
        self._clock = clock
        self._earlier = earlier
        self._end: RunCompleted | None = None
        self._completed = False
        self._announcer = Announcer(run, topic, self.monitor, self._retry)

    def run(self) -> None:
        while self.proceed() and not self._queue.wait_finished(self._close_earlier(), unless=self.interrupted):
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

    def _close_earlier(self) -> float | None:
        """Closes earlier runs. Returns the seconds after which it has to be tried again, if any."""
        if self._earlier is None or self._earlier.close_all(self.monitor):
            self._earlier = None
            return None
        return _AGAIN_SECONDS

    def _write(self, last_tick: int) -> RunCompleted:
        # Create it once: a restart, or a start after `ticklake end`, must write the same bytes again.
        if self._end is None:
            self._end = self._known(last_tick) or end_of(self._run.id, last_tick, self._clock)
        try:
            self._storage.write_completion(self._end)
        except StoredFileConflict:
            # Somebody else has just closed the run.
            self._end = self._known(last_tick)
            if self._end is None:
                raise
        return self._end

    def _known(self, last_tick: int) -> RunCompleted | None:
        """Returns the record of the run, if it has this last tick. Raises `RunClosed` if it has another."""
        try:
            known = self._storage.read_completion(self._run.id)
        except BadFile:
            return None
        life = life_of(known)
        if known is not None and decide(life, abandon=False, last_tick=last_tick).step is not Step.KEEP:
            raise closed_error(self._run.id, life, known.last_tick + 1, last_tick)
        return known
