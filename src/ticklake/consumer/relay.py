"""Publishes the messages of an outbox on its topic: in order, exactly once, by one relay at a time."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from types import TracebackType

from ticklake import faults
from ticklake.backoff import pause_after
from ticklake.checks.numbers import check_count, check_seconds, deadline_after
from ticklake.consumer.outbox import Attempts, Outbox, Row
from ticklake.consumer.patience import INTERRUPTIONS, OUTAGE_PAUSE, Patience
from ticklake.contracts import TopicEnvelope
from ticklake.database import OUTAGES, Listener
from ticklake.database.errors import DatabaseClosed, LockNotAvailable
from ticklake.errors import TickLakeError
from ticklake.monitoring import Monitor
from ticklake.topics import Message, Run
from ticklake.topics.envelope import client_clock_ms, wrap
from ticklake.topics.errors import TopicClosed
from ticklake.topics.store import BATON_GROUP, baton_id, baton_topic, is_baton

LEASE_SECONDS = 5.0
LONGEST_RETRY = 60.0
LOCKED_PAUSE = 0.5
DRAIN_LOOK = 0.1
DRAIN_GRACE = 1.0
_FOR_EVER = 1_000_000_000
_log = logging.getLogger(__name__)


class Relay:
    """Publishes the outbox of a topic. Any number of relays can be started; only the one with the baton publishes.

    The baton is a message in a separate topic (`outbox/TOPIC`). A relay claims it and extends the claim. If the relay
    dies, the claim expires and another relay gets it. `ticklake claims` shows the holder.
    """

    def __init__(self, run: Run, topic: str, *, lease: float = LEASE_SECONDS, batch_size: int = 500) -> None:
        check_seconds("lease", lease, above_zero=True)
        check_count("batch_size", batch_size, least=1)
        self.monitor = Monitor(f"relay to {topic}")
        self._run = run
        self._outbox = Outbox(run, topic)
        self._writer = run.writer(topic)
        self._lease = lease
        self._batch_size = batch_size
        self._batons = run.reader(
            baton_topic(topic), group=BATON_GROUP, claim_timeout=lease, max_delivery_attempts=_FOR_EVER
        )
        self._baton: Message | None = None
        self._renewed = 0.0
        self._listener: Listener | None = None
        self._stopping = False
        self.error: BaseException | None = None
        _add_baton(run, self._batons.topic)

    def run(self) -> None:
        """Publishes until `stop()` and retries failures. If an error ends it earlier, `error` is set."""
        try:
            self._relay_until_stopped()
        except BaseException as error:
            self.error = error
            raise

    def _relay_until_stopped(self) -> None:
        while not self._stopping:
            try:
                self.relay(self._lease)
            except (DatabaseClosed, TopicClosed):
                raise
            except TickLakeError as error:
                self._interrupted(error)
                time.sleep(OUTAGE_PAUSE)

    def relay(self, timeout: float = 0.0) -> int:
        """Publishes the next messages once this relay has the baton. Returns how many; 0 after `timeout`."""
        until = deadline_after(timeout, time.monotonic())
        deadline = math.inf if until is None else until
        while not self._stopping:
            attempts = self._outbox.attempts() if self._leads(deadline) else None
            pause = None if attempts is None else _pause(attempts)
            if attempts is not None and pause == 0:
                published = self._publish(_batch(self._batch_size, attempts), attempts.head)
                if published is not None:
                    return published
                pause = LOCKED_PAUSE
            if time.monotonic() >= deadline:
                return 0
            if self._baton is not None:
                self._wait(deadline, pause)
        return 0

    def drain(self) -> int:
        """Publishes the whole outbox. Returns the number of messages that are left.

        Waits for the baton of a dead relay until its lease ends, and for another relay as long as it makes progress.
        Messages are left if there is no progress for longer than a lease. Raises the error of an outage after a minute.
        """
        patience, left = Patience(), None
        deadline = time.monotonic() + self._lease + DRAIN_GRACE
        while left != 0 and not self._stopping and time.monotonic() < deadline:
            before, problem = left, None
            try:
                published = 0 if left is None else self.relay(DRAIN_LOOK)
                left, problem = self._outbox.count_unsent(), self._batons.problem
                progress = published > 0 or before is None or left < before
            except INTERRUPTIONS as error:
                self._interrupted(error)
                progress, problem = False, error
            if progress:
                patience.renew()
            if problem is not None:
                patience.wait(problem)
            if progress or problem is not None:
                deadline = time.monotonic() + self._lease + DRAIN_GRACE
        return left or 0

    def stop(self) -> None:
        """Makes `run` and `relay` return. Can be called from any thread or signal handler."""
        self._stopping = True
        self._batons.wake()
        if self._listener is not None:
            self._listener.wake()

    def close(self) -> None:
        """Stops, and releases the baton."""
        self.stop()
        self._batons.close()
        self._writer.close()
        if self._listener is not None:
            self._listener.close()

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _leads(self, deadline: float) -> bool:
        """Returns whether this relay has the baton. Waits for it if another relay has it."""
        if self._baton is not None and time.monotonic() > self._renewed + self._lease / 3:
            (held,) = self._batons.extend([self._baton])
            self._baton, self._renewed = (self._baton if held else None), time.monotonic()
        if self._baton is None:
            self._renewed = time.monotonic()
            self._baton = self._next_baton(deadline)
        return self._baton is not None

    def _next_baton(self, deadline: float) -> Message | None:
        """Waits for the baton. Acknowledges any other message, which an earlier version accepted in this topic."""
        while found := self._batons.poll(max(0.0, deadline - time.monotonic())):
            if is_baton(found.topic, found.id):
                return found
            self._batons.ack(found)
        return None

    def _wait(self, deadline: float, pause: float | None) -> None:
        if self._listener is None:
            self._listener = self._outbox.listen()  # the next check finds earlier messages
            return
        limits = (deadline - time.monotonic(), self._lease / 3, LONGEST_RETRY if pause is None else pause)
        self._listener.wait(max(0.0, min(limits)))

    def _publish(self, limit: int, head: int) -> int | None:
        """Publishes messages and returns how many; None if another relay has locked them, which keeps the order.

        Any other error counts as a failed attempt, at least of the oldest message. The next attempt has fewer messages.
        """
        rows: Sequence[Row] = ()
        try:
            with self._run.transaction() as transaction:
                rows = self._outbox.unsent(limit, transaction)
                faults.reach("relay.publish")
                self._writer.forward([row.envelope for row in rows], connection=transaction)
                faults.reach("relay.mark")
                self._outbox.mark_sent(rows, transaction)
                faults.reach("relay.commit")
        except OUTAGES:
            raise
        except (TickLakeError, MemoryError) as error:
            if isinstance(error, LockNotAvailable) and not rows:
                self.monitor.errors.record("RELAY_LOCKED_OUT", error, self._outbox.topic)
                return None
            self._failed([row.id for row in rows] or [head], error)
            return 0
        faults.reach("relay.committed")
        self.monitor.counter("messages_relayed").add(len(rows))
        return len(rows)

    def _interrupted(self, error: TickLakeError) -> None:
        self.monitor.errors.record("RELAY_INTERRUPTED", error, self._outbox.topic)
        _log.warning("Relay to %s: %s", self._outbox.topic, error)

    def _failed(self, ids: Sequence[int], error: Exception) -> None:
        self.monitor.counter("relay_errors").add()
        self.monitor.errors.record("RELAY_FAILED", error, self._outbox.topic)
        _log.warning("RELAY_FAILED topic=%s messages=%d: %s", self._outbox.topic, len(ids), error)
        self._outbox.record_attempt(ids, error)


def _pause(attempts: Attempts) -> float:
    """Returns the seconds until the next attempt. The pause doubles with each failure."""
    if attempts.age_ms is None:
        return 0.0
    return max(0.0, pause_after(attempts.failed, longest=LONGEST_RETRY) - attempts.age_ms / 1000)


def _batch(size: int, attempts: Attempts) -> int:
    """Returns the size of the next batch. It is halved with each failure, so that a bad message blocks fewer others."""
    return max(1, size >> min(attempts.failed, 30))


def _add_baton(run: Run, topic: str) -> None:
    """Publishes the baton, unless it exists. Its id is always the same."""
    baton = wrap(TopicEnvelope(), client_clock_ms(), baton_id(topic))
    with run.baton_writer(topic) as writer:
        writer.forward([baton])
