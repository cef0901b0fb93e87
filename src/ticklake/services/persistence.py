"""Writes ticks from the tick queue to batch files. Each file is durable before it is announced."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from ticklake import defaults, faults
from ticklake.checks.numbers import InvalidOption
from ticklake.contracts import BatchInfo
from ticklake.monitoring import METRICS_WINDOW_SECONDS
from ticklake.services.announcing import Announcer
from ticklake.services.base import Service
from ticklake.services.closing import keep_open
from ticklake.services.errors import RunVanished
from ticklake.services.queue import TickQueue
from ticklake.services.retry import Retry
from ticklake.storage import BatchFile, EncodedTick, Storage
from ticklake.ticks import TickRange
from ticklake.topics import Run

log = logging.getLogger(__name__)
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class PersistenceOptions:
    """The limits of a batch file: ticks, bytes, and the seconds since its oldest tick. The first one closes it."""

    max_batch_size: int = defaults.BATCH_TICKS
    batch_timeout_seconds: float = defaults.BATCH_TIMEOUT_SECONDS
    max_batch_bytes: int = defaults.BATCH_BYTES
    retry: Retry = field(default_factory=Retry)

    def __post_init__(self) -> None:
        for option in ("max_batch_size", "max_batch_bytes"):
            if getattr(self, option) < 1:
                raise InvalidOption(option=option, value=getattr(self, option), allowed="1 or more")
        if not self.batch_timeout_seconds > 0:
            raise InvalidOption(option="batch_timeout_seconds", value=self.batch_timeout_seconds, allowed="more than 0")


class PersistenceService(Service):
    """Several services may share a queue. A service writes the ticks that it popped or releases them to the queue.

    If a write keeps failing, the service fails; another one, or this one after a restart, continues with its ticks.
    A stop first writes all ticks that were queued when it was requested. If the run was closed meanwhile, the service
    fails with `RunClosed`.
    """

    def __init__(
        self,
        run: Run,
        storage: Storage,
        queue: TickQueue,
        options: PersistenceOptions | None = None,
        *,
        topic: str = defaults.BATCH_TOPIC,
        name: str = "persistence-service",
        metrics_window_seconds: float = METRICS_WINDOW_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(name, metrics_window_seconds)
        self._run = run
        self._storage = storage
        self._queue = queue
        self._options = options or PersistenceOptions()
        self._clock = clock
        self._announcer = Announcer(run, topic, self.monitor, self._options.retry)
        self._is_open = False
        self._last_key: str | None = None
        for counter in ("ticks_written", "batches_written", "bytes_written", "write_retries"):
            self.monitor.counter(counter)
        self.monitor.gauge("queued_ticks", lambda: len(queue))
        self.monitor.gauge("queued_bytes", lambda: queue.size_bytes)

    @property
    def unannounced(self) -> int:
        """The number of files that are written but not announced, because the database is away."""
        return len(self._announcer)

    def run(self) -> None:
        self._is_open = False
        with closing(self._announcer):
            while self.proceed() and not self._queue.finished:
                self._announcer.send()
                self._persist(self._pop())
            self._drain()
            self._announcer.send_all(self.wait)

    def wake(self) -> None:
        self._queue.wake()

    def _pop(self) -> list[EncodedTick]:
        options = self._options
        return self._queue.pop(
            options.max_batch_size,
            options.batch_timeout_seconds,
            options.max_batch_bytes,
            unless=self.interrupted,
            within=self._announcer.pause,
        )

    def _drain(self) -> None:
        last_tick, options = self._queue.last_tick, self._options
        if last_tick is None:
            return
        while ticks := self._queue.pop_now(options.max_batch_size, last_tick, options.max_batch_bytes):
            self._persist(ticks)

    def _persist(self, ticks: list[EncodedTick]) -> None:
        if not ticks:
            return
        try:
            file = self._write(ticks)
        except BaseException:
            self._queue.release(ticks)
            raise
        self._announcer.add(file.key, self._info(file), partial(self._queue.done, len(ticks)))
        faults.reach("persistence.publish")
        self._announcer.send()
        faults.reach("persistence.published")

    def _write(self, ticks: list[EncodedTick]) -> BatchFile:
        what = f"Writing ticks {TickRange(ticks[0].number, ticks[-1].number)} of run {self._run.id}"
        with self.monitor.percentiles("write_latency").timed():
            file = self._retried(what, partial(self._write_once, ticks), "write_retries")
        self.monitor.counter("ticks_written").add(len(ticks))
        self.monitor.counter("batches_written").add()
        self.monitor.counter("bytes_written").add(file.size)
        self.monitor.window("write_throughput_per_sec").add(len(ticks))
        log.debug("%s wrote %s", self.name, file.key)
        return file

    def _write_once(self, ticks: list[EncodedTick]) -> BatchFile:
        faults.reach("persistence.write")
        numbers = [ticks[0].number, ticks[-1].number]
        if not self._is_open:  # a producer that comes back to a closed run writes nothing
            self._keep_open(numbers)
        self._check_there()
        file = self._storage.write_batch(self._run.id, ticks)
        # After the write: a run that is closed at the same moment either counts this file, or is seen here.
        self._keep_open(numbers)
        self._is_open, self._last_key = True, file.key
        return file

    def _keep_open(self, numbers: list[int]) -> None:
        if keep_open(self._storage, self._run.id, numbers):
            self.monitor.errors.record("RUN_OPENED_AGAIN", "it was closed after a silence", self._run.id)
            log.warning("Run %s was closed after a silence, but its producer is alive: it is open again", self._run.id)

    def _check_there(self) -> None:
        """Raises if the run was deleted: a new file would bring back a part of it."""
        if self._last_key is None or self._storage.exists(self._last_key) or self._storage.reachable(self._run.id):
            return
        raise RunVanished(run_id=self._run.id, storage=self._storage.url)

    def _info(self, file: BatchFile) -> BatchInfo:
        return BatchInfo(
            simulation_run_id=file.run_id,
            storage_key=file.key,
            tick_start=file.ticks.start,
            tick_end=file.ticks.end,
            written_at_ms=int(self._clock() * 1000),
        )

    def _retried(self, what: str, action: Callable[[], _Result], counter: str) -> _Result:
        return self._options.retry.call(what, action, self.monitor, counter)
