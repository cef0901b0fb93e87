"""The flush loop: polls and buffers while a flush runs, acknowledges what is done, keeps its leases."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import NamedTuple, Protocol

from ticklake import faults
from ticklake.errors import FlushFailed, TickLakeError
from ticklake.indexers.batches import Batches
from ticklake.indexers.buffer import Taken, TickBuffer
from ticklake.lake.flush import Flushed, Flusher
from ticklake.monitoring import Monitor

log = logging.getLogger(__name__)

_POLL_LIMIT = 32
_IDLE_SECONDS = 5.0
_LOOK_SECONDS = 0.2
_SOURCE_SECONDS = 5.0
# So many batches in a row that take their job down cannot all be bad: something else is.
_MAX_DEATHS = 3
_MAX_BACKOFF = 60.0


class Life(Protocol):
    """The service that this loop is the work of."""

    def proceed(self) -> bool:
        """Waits while paused. False once the work should end."""

    def interrupted(self) -> bool:
        """Whether it is to pause or to end."""

    def wait(self, seconds: float) -> bool:
        """Sleeps, but no longer than until the end."""


class _Flight(NamedTuple):
    """A flush that is under way."""

    taken: Taken
    result: Future[Flushed]
    started: float


class FlushLoop:
    """One indexer at work on one run."""

    def __init__(
        self,
        batches: Batches,
        buffer: TickBuffer,
        flusher: Flusher,
        monitor: Monitor,
        life: Life,
        until_caught_up: bool,
    ) -> None:
        self._batches, self._buffer, self._flusher, self._monitor = batches, buffer, flusher, monitor
        self._life = life
        self._until_caught_up = until_caught_up
        self._flight: _Flight | None = None
        self._failures = self._deaths = 0
        self._not_before = 0.0
        self._alone = 0
        self._renewed = self._progressed = time.monotonic()
        self._progress = 0
        monitor.gauge("batches_buffered", lambda: len(buffer))
        monitor.gauge("ticks_buffered", lambda: buffer.ticks)

    def run(self) -> None:
        with ThreadPoolExecutor(1, "flush") as executor:
            try:
                while self._survived(lambda: self._turn(executor)):
                    pass
            finally:
                with suppress(TickLakeError):
                    self._batches.give_back(self._buffer.held)

    def _turn(self, executor: ThreadPoolExecutor) -> bool:
        """One round of the loop; False after the last."""
        if not self._proceed(executor) or self._caught_up():
            self._drain(executor)
            return False
        self._collect()
        self._land()
        self._take_off(executor, only_if_due=True)
        self._renew()
        return True

    def _survived(self, turn: Callable[[], bool]) -> bool:
        """A database or storage that does not answer is waited for: what was not acknowledged is delivered again."""
        try:
            return turn()
        except TickLakeError as error:
            if self._until_caught_up:
                raise
            self._monitor.healthy = False
            self._monitor.errors.record("SOURCE_FAILED", error)
            log.warning("Trying again in %g seconds: %s", _SOURCE_SECONDS, error)
            return self._life.wait(_SOURCE_SECONDS)

    def _proceed(self, executor: ThreadPoolExecutor) -> bool:
        if self._life.interrupted():
            # A pause may be long: whoever else is there should have what this one would only hold.
            self._drain(executor)
            self._batches.give_back(self._buffer.clear())
        return self._life.proceed()

    def _caught_up(self) -> bool:
        return self._flight is None and not self._buffer and self._nothing_more()

    def _nothing_more(self) -> bool:
        return self._until_caught_up and self._batches.exhausted

    def _collect(self) -> None:
        """Waits for what comes first: a batch, the end of a flush, the moment a flush or a renewal is due."""
        seconds = self._patience()
        if self._flight and (self._buffer.full or self._nothing_more()):
            wait([self._flight.result], seconds)
        elif not self._buffer.full:
            for delivery in self._batches.poll(_POLL_LIMIT, seconds):
                self._buffer.add(delivery, time.monotonic())
        elif not self._flight:
            self._life.wait(max(0.0, min(self._not_before - time.monotonic(), seconds)))

    def _patience(self) -> float:
        now = time.monotonic()
        moments = [now + (self._buffer.flush_timeout or _IDLE_SECONDS)]
        if self._flight is None and self._buffer:
            moments.append(max(self._buffer.due_at(), self._not_before))
        if self._batches.lease and (self._flight or self._buffer):
            moments.append(self._renewed + self._batches.lease / 3)
        if self._until_caught_up and self._flight is None:
            moments.append(now if self._nothing_more() else now + _LOOK_SECONDS)
        return max(0.0, min(moments) - now)

    def _take_off(self, executor: ThreadPoolExecutor, only_if_due: bool) -> None:
        now = time.monotonic()
        if self._flight or not self._buffer or now < self._not_before:
            return
        if only_if_due and self._buffer.due_at() > now and not self._nothing_more():
            return
        taken = self._buffer.take(now, only_first=self._alone > 0)
        result = executor.submit(self._flusher.flush, taken.slices)
        result.add_done_callback(lambda _: self._batches.wake())
        self._flight = _Flight(taken, result, now)
        self._progress, self._progressed = 0, now

    def _land(self) -> None:
        """Deals with a flush that has ended: acks, failures, or another try."""
        if self._flight is None or not self._flight.result.done():
            return
        flight, self._flight = self._flight, None
        error = flight.result.exception()
        if error is None:
            self._account(flight, flight.result.result())
        elif isinstance(error, TickLakeError):
            self._retry(flight.taken, error)
        else:
            raise error

    def _account(self, flight: _Flight, flushed: Flushed) -> None:
        self._failures, self._deaths, self._alone = 0, 0, max(0, self._alone - 1)
        self._monitor.healthy = True
        faults.reach("indexer.ack.before")
        done = self._buffer.settle(flight.taken, flushed.failures)
        for number, failure in flushed.failures.items():
            log.debug("Slice %s failed: %s", flight.taken.slices[number], failure.trace)
            self._batches.fail(flight.taken.deliveries[number], failure.error)
        self._batches.done(done)
        faults.reach("indexer.ack.after")
        self._count(flushed, len(done), time.monotonic() - flight.started)

    def _count(self, flushed: Flushed, batches: int, seconds: float) -> None:
        counts = {
            "flushes": 1,
            "batches_processed": batches,
            "ticks_processed": flushed.ticks,
            "ticks_present": flushed.present,
            "rows_written": flushed.rows,
        }
        for name, count in (counts | flushed.observed).items():
            self._monitor.counter(name).add(count)
        self._monitor.window("rows_per_sec").add(flushed.rows)
        self._monitor.percentiles("flush").record(seconds)
        log.debug("Flushed %d ticks as %d rows in %.3f s", flushed.ticks, flushed.rows, seconds)

    def _retry(self, taken: Taken, error: TickLakeError) -> None:
        """Nothing was written and nothing is lost. A job that dies is tried one batch at a time, to find which."""
        self._failures += 1
        self._monitor.healthy = False
        self._monitor.errors.record("FLUSH_FAILED", error)
        log.warning("Flush failed, trying again: %s", error)
        if isinstance(error, FlushFailed) and len(taken.slices) == 1 and self._deaths < _MAX_DEATHS:
            self._deaths += 1
            self._alone = max(0, self._alone - 1)
            self._buffer.settle(taken, failed={0})
            self._batches.fail(taken.deliveries[0], str(error))
            return
        if isinstance(error, FlushFailed):
            self._alone = len(taken.slices)
        self._buffer.put_back(taken)
        self._not_before = time.monotonic() + min(2.0 ** (self._failures - 1), _MAX_BACKOFF)

    def _renew(self) -> None:
        """Extends the leases of what is held, unless the flush under way has stood still for a whole lease."""
        now = time.monotonic()
        if not self._batches.lease or now < self._renewed + self._batches.lease / 3:
            return
        self._renewed = now
        if self._flight is not None:
            progress = self._flusher.progress()
            if progress != self._progress:
                self._progress, self._progressed = progress, now
            if now - self._progressed > self._batches.lease:
                self._monitor.errors.record("FLUSH_STUCK", f"no progress for {now - self._progressed:.0f} seconds")
                return
        self._buffer.drop(self._batches.renew(self._buffer.held))

    def _drain(self, executor: ThreadPoolExecutor) -> None:
        """A graceful stop: what is buffered is flushed and acknowledged, unless flushing fails just now."""
        while self._flight or (self._buffer and not self._failures):
            self._take_off(executor, only_if_due=False)
            if self._flight:
                wait([self._flight.result], self._patience())
            self._land()
            self._renew()
