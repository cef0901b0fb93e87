"""The flush loop: buffers batches during a flush, acknowledges those that are done, and renews leases."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from ticklake import faults
from ticklake.backoff import pause_after
from ticklake.errors import TickLakeError
from ticklake.indexers.batches import Batches
from ticklake.indexers.buffer import FlushInput, TickBuffer
from ticklake.lake.errors import FlushFailed, SparkUnavailable, TableReplaced
from ticklake.lake.flush import Flush, Flushed, Flusher
from ticklake.logs import log_service
from ticklake.monitoring import Monitor

log = logging.getLogger(__name__)

_POLL_LIMIT = 32
_IDLE_SECONDS = 5.0
_CATCH_UP_SECONDS = 0.2
_SOURCE_RETRY_SECONDS = 5.0
# One flush commits while the job of the next one uses the cores.
_MAX_ACTIVE = 2
# After this many batches in a row that crashed their job, the loop backs off.
_MAX_CRASHES = 3
_FIRST_BACKOFF = 1.0
_MAX_BACKOFF = 60.0
# The highest share of a flush that is shown as done before its commit.
_MAX_DONE = 0.95


class Lifecycle(Protocol):
    """The service that the loop belongs to."""

    def proceed(self) -> bool:
        """Waits while paused. Returns False if the loop should end."""

    def interrupted(self) -> bool:
        """Returns whether a pause or a stop was requested."""

    def wait(self, seconds: float) -> bool:
        """Sleeps until the time is over or a stop is requested. Returns False if the loop should end."""


@dataclass(eq=False)
class _ActiveFlush:
    """A flush in progress. `moved` is when its progress last changed."""

    popped: FlushInput
    flush: Flush
    result: Future[Flushed]
    started: float
    moved: float
    ticks: int
    progress: int = 0

    @property
    def weight(self) -> float:
        return sum(slice_.weight() for slice_ in self.popped.slices)


class FlushLoop:
    """The work of one indexer on one run."""

    def __init__(
        self,
        batches: Batches,
        buffer: TickBuffer,
        flusher: Flusher,
        monitor: Monitor,
        lifecycle: Lifecycle,
        until_caught_up: bool,
    ) -> None:
        self._batches, self._buffer, self._flusher, self._monitor = batches, buffer, flusher, monitor
        self._lifecycle = lifecycle
        self._until_caught_up = until_caught_up
        self._active: list[_ActiveFlush] = []
        self._failures = self._crashes = 0
        self._not_before = 0.0
        self._single_flushes = 0
        self._renewed = time.monotonic()
        # Bytes of Parquet per byte of batch file; an estimate before the first flush.
        self._output_ratio = 1.0
        self._idle_since: float | None = None
        self._source_failed = False
        monitor.gauge("batches_buffered", lambda: len(buffer))
        monitor.gauge("ticks_buffered", lambda: buffer.ticks)

    def run(self) -> None:
        with ThreadPoolExecutor(_MAX_ACTIVE, "flush", log_service.set, (log_service.get(),)) as executor:
            try:
                while self._try_round(lambda: self._round(executor)):
                    pass
            finally:
                with suppress(TickLakeError):
                    self._batches.release(self._buffer.held)

    @property
    def idle_seconds(self) -> float | None:
        """For how long no further batches have come; None while there are some, or before the first look.

        Batches that only wait for more do not count: a stop flushes them.
        """
        since = self._idle_since
        return None if since is None else time.monotonic() - since

    def under_way(self) -> int:
        """Returns an estimate of the ticks that active flushes have done, from the bytes that they have written."""
        return sum(self._ticks_done(active) for active in list(self._active))

    def _ticks_done(self, active: _ActiveFlush) -> int:
        expected = self._output_ratio * active.weight or 1.0
        return int(active.ticks * min(_MAX_DONE, max(0, active.flush.progress()) / expected))

    def _round(self, executor: ThreadPoolExecutor) -> bool:
        """One round of the loop. Returns False after the last one."""
        if not self._proceed(executor) or self._caught_up():
            self._drain(executor)
            return False
        self._fill_buffer()
        self._finish_flushes()
        self._start_flush(executor, only_if_due=True)
        self._renew()
        return True

    def _try_round(self, one_round: Callable[[], bool]) -> bool:
        """Waits if a database or a storage does not answer, then continues. Batches without an ack come again."""
        try:
            goes_on = one_round()
        except TickLakeError as error:
            # For a new table the indexer must start again, because the group and the coordinator record the table id.
            if self._until_caught_up or isinstance(error, TableReplaced):
                raise
            self._monitor.healthy, self._source_failed = False, True
            self._monitor.errors.record("SOURCE_FAILED", error)
            log.warning("Trying again in %g seconds: %s", _SOURCE_RETRY_SECONDS, error)
            return self._lifecycle.wait(_SOURCE_RETRY_SECONDS)
        if self._source_failed and not self._suspicious:
            self._monitor.healthy, self._source_failed = True, False
        return goes_on

    def _proceed(self, executor: ThreadPoolExecutor) -> bool:
        if self._lifecycle.interrupted():
            # A pause may be long, so other indexers should get these batches.
            self._drain(executor)
            self._batches.release(self._buffer.clear())
        return self._lifecycle.proceed()

    def _caught_up(self) -> bool:
        return not self._active and not self._buffer and self._nothing_more()

    def _nothing_more(self) -> bool:
        return self._until_caught_up and self._batches.exhausted

    def _fill_buffer(self) -> None:
        """Waits for a batch, for the end of a flush, or until a flush or a renewal is due."""
        if self._may_start_flush(time.monotonic()):
            return
        seconds = self._seconds_to_wait()
        if self._active and (self._buffer.full or self._buffer.isolates or self._nothing_more()):
            self._wait_for_flush(seconds)
        elif not (self._buffer.full or self._buffer.isolates):
            self._poll(seconds)
        else:
            self._lifecycle.wait(max(0.0, min(self._not_before - time.monotonic(), seconds)))

    def _poll(self, seconds: float) -> None:
        """Fills the buffer. The first poll after work does not wait: other runs may need this run's place."""
        may_be_idle = not self._active and not self._suspicious
        found = self._batches.poll(_POLL_LIMIT, 0.0 if may_be_idle and self._idle_since is None else seconds)
        for delivery in found:
            self._buffer.add(delivery, time.monotonic())
        if found or not may_be_idle:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = time.monotonic()

    def _wait_for_flush(self, seconds: float) -> None:
        wait([active.result for active in self._active], seconds, return_when=FIRST_COMPLETED)

    def _seconds_to_wait(self) -> float:
        now = time.monotonic()
        moments = [now + (self._buffer.flush_timeout or _IDLE_SECONDS)]
        if self._has_room() and self._buffer:
            moments.append(max(self._buffer.due_at(), self._not_before))
        if self._batches.lease and (self._active or self._buffer):
            moments.append(self._renewed + self._batches.lease / 3)
        if self._until_caught_up and not self._active:
            moments.append(now if self._nothing_more() else now + _CATCH_UP_SECONDS)
        return max(0.0, min(moments) - now)

    def _has_room(self) -> bool:
        """Returns whether another flush may start. After a failure, only one at a time is active."""
        return len(self._active) < (1 if self._suspicious else _MAX_ACTIVE) and not self._buffer.waits_for_others

    @property
    def _suspicious(self) -> bool:
        """Whether no flush has succeeded since the last failure."""
        return self._failures > 0 or self._crashes > 0

    def _failing(self) -> bool:
        """Returns whether a flush has failed and no retry is due yet, even if another one has succeeded since."""
        return self._failures > 0 or time.monotonic() < self._not_before

    def _may_start_flush(self, now: float, only_if_due: bool = True) -> bool:
        if not self._has_room() or now < self._not_before:
            return False
        due = self._buffer.due_at()
        return due <= now or (due < float("inf") and (not only_if_due or self._nothing_more()))

    def _start_flush(self, executor: ThreadPoolExecutor, only_if_due: bool) -> None:
        now = time.monotonic()
        if not self._may_start_flush(now, only_if_due):
            return
        buffered = self._buffer.ticks
        popped = self._buffer.pop(now, only_first=self._single_flushes > 0 or self._crashes > 0)
        self._single_flushes = max(0, self._single_flushes - 1)
        flush = self._flusher.begin(popped.slices)
        result = executor.submit(partial(self._flush_after_spark_check, flush) if self._suspicious else flush.run)
        result.add_done_callback(lambda _: self._batches.wake())
        self._active.append(
            _ActiveFlush(popped, flush, result, started=now, moved=now, ticks=buffered - self._buffer.ticks)
        )

    def _flush_after_spark_check(self, flush: Flush) -> Flushed:
        """Checks Spark with an empty job first. If Spark then dies during the flush, the flush is the cause."""
        self._flusher.check_spark()
        try:
            return flush.run()
        except SparkUnavailable as error:
            raise FlushFailed(table=self._flusher.name, reason=error.reason) from error

    def _finish_flushes(self) -> None:
        """Handles the flushes that have ended: acks, failures or retries."""
        for active in [active for active in self._active if active.result.done()]:
            self._active.remove(active)
            error = active.result.exception()
            if error is None:
                self._record_success(active, active.result.result())
            elif isinstance(error, TickLakeError) and not isinstance(error, TableReplaced):
                self._retry(active.popped, error)
            else:
                raise error

    def _record_success(self, active: _ActiveFlush, flushed: Flushed) -> None:
        self._failures = self._crashes = 0
        self._output_ratio = flushed.bytes / active.weight if flushed.bytes else self._output_ratio
        self._monitor.healthy = True
        faults.reach("indexer.ack.before")
        failed = self._buffer.first_failures(active.popped, flushed.failures)
        done = self._buffer.finish(
            active.popped,
            failed=flushed.failures,
            proven=flushed.proven,
            remaining=flushed.remaining,
            present=flushed.present,
            history=flushed.history,
        )
        for number in failed:
            failure = flushed.failures[number]
            log.debug("Slice %s failed: %s", active.popped.slices[number], failure.trace)
            self._batches.fail(active.popped.deliveries[number], failure.error)
        self._batches.done(done)
        faults.reach("indexer.ack.after")
        self._count(flushed, len(done), time.monotonic() - active.started)

    def _count(self, flushed: Flushed, batches: int, seconds: float) -> None:
        counts = {
            "flushes": 1,
            "batches_processed": batches,
            "ticks_processed": flushed.ticks,
            "ticks_present": flushed.ticks_present,
            "rows_written": flushed.rows,
            "task_ms": round(flushed.task_seconds * 1000),
        }
        for name, count in (counts | flushed.observed).items():
            self._monitor.counter(name).add(count)
        self._monitor.window("rows_per_sec").add(flushed.rows)
        self._monitor.percentiles("flush").record(seconds)
        log.debug("Flushed %d ticks as %d rows in %.3f s", flushed.ticks, flushed.rows, seconds)

    def _retry(self, popped: FlushInput, error: TickLakeError) -> None:
        """Retries a failed flush, which has written nothing. After a crash of its job, each batch is flushed alone.

        A batch that crashes its job alone fails; after too many deliveries it becomes a dead letter. Other failures
        are retried without a limit.
        """
        self._monitor.healthy = False
        self._monitor.errors.record("FLUSH_FAILED", error)
        log.warning("Flush failed, trying again: %s", error)
        if isinstance(error, FlushFailed) and len(popped.slices) == 1:
            self._crashes += 1
            if self._crashes > _MAX_CRASHES:
                self._back_off(self._crashes - _MAX_CRASHES)
            self._buffer.finish(popped, failed={0})
            self._batches.fail(popped.deliveries[0], str(error))
            return
        if isinstance(error, FlushFailed):
            self._single_flushes += len(popped.slices)
        self._failures += 1
        self._buffer.requeue(popped)
        self._back_off(self._failures)

    def _back_off(self, times: int) -> None:
        self._not_before = time.monotonic() + pause_after(times, first=_FIRST_BACKOFF, longest=_MAX_BACKOFF)

    def _renew(self) -> None:
        """Renews the leases of all held batches, except those of stuck flushes."""
        now = time.monotonic()
        if not self._batches.lease or now < self._renewed + self._batches.lease / 3:
            return
        self._renewed = now
        stuck = {delivery for active in self._stuck(now) for delivery in active.popped.deliveries}
        self._buffer.drop(self._batches.renew([held for held in self._buffer.held if held not in stuck]))

    def _stuck(self, now: float) -> list[_ActiveFlush]:
        """Returns the flushes without progress for a whole lease, except those that may wait for an earlier job."""
        stuck: list[_ActiveFlush] = []
        for place, active in enumerate(self._active):
            progress = active.flush.progress()
            if progress != active.progress or place > len(stuck):
                active.progress, active.moved = progress, now
            if now - active.moved > self._batches.lease:
                self._monitor.errors.record("FLUSH_STUCK", f"no progress for {now - active.moved:.0f} seconds")
                stuck.append(active)
        return stuck

    def _drain(self, executor: ThreadPoolExecutor) -> None:
        """Flushes and acknowledges all buffered batches before a stop, unless flushes are failing."""
        while self._active or (self._buffer and not self._failing()):
            self._start_flush(executor, only_if_due=False)
            if self._active:
                self._wait_for_flush(self._seconds_to_wait())
            self._finish_flushes()
            self._renew()
