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
from ticklake.lives import Life, Step, decide, life_of
from ticklake.services.announcing import Announcer
from ticklake.services.base import Service
from ticklake.services.closing import closed_error, end_of, write_record
from ticklake.services.earlier import EarlierRuns
from ticklake.services.errors import RunClosed, RunEndedBefore
from ticklake.services.queue import TickQueue
from ticklake.services.retry import Retry
from ticklake.storage import Storage
from ticklake.storage.errors import BadFile
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
        what, hopeless = "Writing the end of the run", (BadFile, RunEndedBefore)
        end = self._retry.call(what, write, self.monitor, "write_retries", hopeless)
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
        """Returns the record of the run, if it has this last tick, or writes it."""
        while True:
            known = self._storage.read_completion(self._run.id)
            life = life_of(known)
            step, _ = decide(life, cause="", last_tick=last_tick)
            if step is Step.KEEP and known is not None:
                self._storage.sync_completion(self._run.id)  # its writer may have just died
                return known
            if step is Step.REFUSE:
                raise self._refusal(life, last_tick)
            write_record(self._storage, end_of(self._run.id, last_tick, self._clock), known)

    def _refusal(self, life: Life, last_tick: int) -> RunClosed | RunEndedBefore:
        if life.last_tick is not None and life.last_tick < last_tick:
            return closed_error(self._run.id, life, life.last_tick + 1, last_tick)
        return RunEndedBefore(run_id=self._run.id, life=life)
