"""The flush loop: polls and buffers while a flush runs, acknowledges what is done, keeps its leases."""

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
from ticklake.indexers.buffer import Taken, TickBuffer
from ticklake.lake.errors import FlushFailed, SparkUnavailable, TableReplaced
from ticklake.lake.flush import Flush, Flushed, Flusher
from ticklake.logs import log_service
from ticklake.monitoring import Monitor

log = logging.getLogger(__name__)

_POLL_LIMIT = 32
_IDLE_SECONDS = 5.0
_LOOK_SECONDS = 0.2
_SOURCE_SECONDS = 5.0
# One flush commits while the job of the next one has the cores.
_MAX_FLIGHTS = 2
# After so many batches in a row that took their job down, the next one waits a moment.
_MAX_DEATHS = 3
_MAX_BACKOFF = 60.0
# A flush that is not committed is never shown as done.
_AT_MOST_DONE = 0.95


class Life(Protocol):
    """The service that this loop is the work of."""

    def proceed(self) -> bool:
        """Waits while paused. False once the work should end."""

    def interrupted(self) -> bool:
        """Whether it is to pause or to end."""

    def wait(self, seconds: float) -> bool:
        """Sleeps, but no longer than until the end."""


@dataclass(eq=False)
class _Flight:
    """A flush that is under way, and how far it was when it was last seen to move."""

    taken: Taken
    flush: Flush
    result: Future[Flushed]
    started: float
    moved: float
    ticks: int
    progress: int = 0

    @property
    def weight(self) -> float:
        return sum(piece.weight() for piece in self.taken.slices)


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
        self._flights: list[_Flight] = []
        self._failures = self._deaths = 0
        self._not_before = 0.0
        self._alone = 0
        self._renewed = time.monotonic()
        # Bytes of Parquet for a byte of batch file: a guess until the first flush has landed.
        self._shrinkage = 1.0
        monitor.gauge("batches_buffered", lambda: len(buffer))
        monitor.gauge("ticks_buffered", lambda: buffer.ticks)

    def run(self) -> None:
        with ThreadPoolExecutor(_MAX_FLIGHTS, "flush", log_service.set, (log_service.get(),)) as executor:
            try:
                while self._survived(lambda: self._turn(executor)):
                    pass
            finally:
                with suppress(TickLakeError):
                    self._batches.give_back(self._buffer.held)

    def under_way(self) -> int:
        """About how many ticks the running flushes have done, going by what they have written so far."""
        return sum(self._done_of(flight) for flight in list(self._flights))

    def _done_of(self, flight: _Flight) -> int:
        expected = self._shrinkage * flight.weight or 1.0
        return int(flight.ticks * min(_AT_MOST_DONE, max(0, flight.flush.progress()) / expected))

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
            # The group and the coordinator know another table by its id: only a new start tells them.
            if self._until_caught_up or isinstance(error, TableReplaced):
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
        return not self._flights and not self._buffer and self._nothing_more()

    def _nothing_more(self) -> bool:
        return self._until_caught_up and self._batches.exhausted

    def _collect(self) -> None:
        """Waits for what comes first: a batch, the end of a flush, the moment a flush or a renewal is due."""
        if self._may_take_off(time.monotonic()):
            return
        seconds = self._patience()
        if self._flights and (self._buffer.full or self._nothing_more()):
            self._wait_for_a_landing(seconds)
        elif not self._buffer.full:
            for delivery in self._batches.poll(_POLL_LIMIT, seconds):
                self._buffer.add(delivery, time.monotonic())
        else:
            self._life.wait(max(0.0, min(self._not_before - time.monotonic(), seconds)))

    def _wait_for_a_landing(self, seconds: float) -> None:
        wait([flight.result for flight in self._flights], seconds, return_when=FIRST_COMPLETED)

    def _patience(self) -> float:
        now = time.monotonic()
        moments = [now + (self._buffer.flush_timeout or _IDLE_SECONDS)]
        if self._has_room() and self._buffer:
            moments.append(max(self._buffer.due_at(), self._not_before))
        if self._batches.lease and (self._flights or self._buffer):
            moments.append(self._renewed + self._batches.lease / 3)
        if self._until_caught_up and not self._flights:
            moments.append(now if self._nothing_more() else now + _LOOK_SECONDS)
        return max(0.0, min(moments) - now)

    def _has_room(self) -> bool:
        """Whether another flush may be under way. While something is wrong, one at a time."""
        return len(self._flights) < (1 if self._suspicious else _MAX_FLIGHTS)

    @property
    def _suspicious(self) -> bool:
        """Whether no flush has succeeded since the last one that failed."""
        return self._failures > 0 or self._deaths > 0

    def _failing(self) -> bool:
        """Whether a flush has failed and it is not time yet to try again, also where another one has landed since."""
        return self._failures > 0 or time.monotonic() < self._not_before

    def _may_take_off(self, now: float, only_if_due: bool = True) -> bool:
        if not self._has_room() or now < self._not_before:
            return False
        due = self._buffer.due_at()
        return due <= now or (due < float("inf") and (not only_if_due or self._nothing_more()))

    def _take_off(self, executor: ThreadPoolExecutor, only_if_due: bool) -> None:
        now = time.monotonic()
        if not self._may_take_off(now, only_if_due):
            return
        buffered = self._buffer.ticks
        taken = self._buffer.take(now, only_first=self._alone > 0 or self._deaths > 0)
        self._alone = max(0, self._alone - 1)
        flush = self._flusher.begin(taken.slices)
        result = executor.submit(partial(self._run_on_sound_spark, flush) if self._suspicious else flush.run)
        result.add_done_callback(lambda _: self._batches.wake())
        self._flights.append(_Flight(taken, flush, result, started=now, moved=now, ticks=buffered - self._buffer.ticks))

    def _run_on_sound_spark(self, flush: Flush) -> Flushed:
        """Runs an empty job first. If that succeeds and Spark dies of the flush, the flush is to blame."""
        self._flusher.check_spark()
        try:
            return flush.run()
        except SparkUnavailable as error:
            raise FlushFailed(table=self._flusher.name, reason=error.reason) from error

    def _land(self) -> None:
        """Deals with the flushes that have ended: acks, failures, or another try."""
        for flight in [flight for flight in self._flights if flight.result.done()]:
            self._flights.remove(flight)
            error = flight.result.exception()
            if error is None:
                self._account(flight, flight.result.result())
            elif isinstance(error, TickLakeError) and not isinstance(error, TableReplaced):
                self._retry(flight.taken, error)
            else:
                raise error

    def _account(self, flight: _Flight, flushed: Flushed) -> None:
        self._failures = self._deaths = 0
        self._shrinkage = flushed.bytes / flight.weight if flushed.bytes else self._shrinkage
        self._monitor.healthy = True
        faults.reach("indexer.ack.before")
        blamed = self._buffer.blamed(flight.taken, flushed.failures)
        done = self._buffer.settle(
            flight.taken, flushed.failures, flushed.proven, flushed.left, flushed.there, flushed.history
        )
        for number in blamed:
            failure = flushed.failures[number]
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
            "task_ms": round(flushed.task_seconds * 1000),
        }
        for name, count in (counts | flushed.observed).items():
            self._monitor.counter(name).add(count)
        self._monitor.window("rows_per_sec").add(flushed.rows)
        self._monitor.percentiles("flush").record(seconds)
        log.debug("Flushed %d ticks as %d rows in %.3f s", flushed.ticks, flushed.rows, seconds)

    def _retry(self, taken: Taken, error: TickLakeError) -> None:
        """Nothing was written and nothing is lost. A job that dies is tried again one batch at a time, to find which.

        A batch that takes its job down alone fails, which counts as a delivery: in the end it is a dead letter. All
        else is tried again for as long as it takes.
        """
        self._monitor.healthy = False
        self._monitor.errors.record("FLUSH_FAILED", error)
        log.warning("Flush failed, trying again: %s", error)
        if isinstance(error, FlushFailed) and len(taken.slices) == 1:
            self._deaths += 1
            if self._deaths > _MAX_DEATHS:
                self._wait_longer(self._deaths - _MAX_DEATHS)
            self._buffer.settle(taken, failed={0})
            self._batches.fail(taken.deliveries[0], str(error))
            return
        if isinstance(error, FlushFailed):
            self._alone += len(taken.slices)
        self._failures += 1
        self._buffer.put_back(taken)
        self._wait_longer(self._failures)

    def _wait_longer(self, times: int) -> None:
        self._not_before = time.monotonic() + pause_after(times, longest=_MAX_BACKOFF)

    def _renew(self) -> None:
        """Extends the leases of what is held, but not of a flush that has stood still for a whole lease."""
        now = time.monotonic()
        if not self._batches.lease or now < self._renewed + self._batches.lease / 3:
            return
        self._renewed = now
        stuck = {delivery for flight in self._stuck(now) for delivery in flight.taken.deliveries}
        self._buffer.drop(self._batches.renew([held for held in self._buffer.held if held not in stuck]))

    def _stuck(self, now: float) -> list[_Flight]:
        """The flushes that have not moved for a lease. One whose job may be waiting for the one before it has time."""
        stuck: list[_Flight] = []
        for place, flight in enumerate(self._flights):
            progress = flight.flush.progress()
            if progress != flight.progress or place > len(stuck):
                flight.progress, flight.moved = progress, now
            if now - flight.moved > self._batches.lease:
                self._monitor.errors.record("FLUSH_STUCK", f"no progress for {now - flight.moved:.0f} seconds")
                stuck.append(flight)
        return stuck

    def _drain(self, executor: ThreadPoolExecutor) -> None:
        """A graceful stop: what is buffered is flushed and acknowledged, unless flushing fails just now."""
        while self._flights or (self._buffer and not self._failing()):
            self._take_off(executor, only_if_due=False)
            if self._flights:
                self._wait_for_a_landing(self._patience())
            self._land()
            self._renew()
