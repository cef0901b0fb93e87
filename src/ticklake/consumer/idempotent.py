"""A consumer that processes each event once: mark, work and results are stored in one transaction."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from types import TracebackType
from typing import Any
from uuid import UUID, uuid4

from google.protobuf.message import Message as Payload

from ticklake import defaults, faults
from ticklake.backoff import pause_after
from ticklake.checks.numbers import check_count, check_function, check_seconds
from ticklake.consumer.deliveries import Delivery, Outcome, copied, first_of_each_event, payloads_of, uuid_of
from ticklake.consumer.errors import NowhereToPublish, ResultsNotPublished
from ticklake.consumer.outbox import Outbox, Result
from ticklake.consumer.patience import INTERRUPTIONS, OUTAGE_PAUSE, Patience
from ticklake.consumer.processed import WAIT_SECONDS, ProcessedMessages
from ticklake.consumer.relay import LEASE_SECONDS, Relay
from ticklake.database import OUTAGES, Transaction
from ticklake.errors import TickLakeError
from ticklake.monitoring import Monitor
from ticklake.text import error_text
from ticklake.topics import Message, Run

Handler = Callable[[Any, Transaction], Payload | Iterable[Payload] | None]
"""The user's function. It gets the payload and the transaction, and returns the payloads to publish."""

Part = Callable[[Transaction], AbstractContextManager[object]]
"""The context of the work of one message: a savepoint, or nothing."""

TRANSACTION_SECONDS = 1.0
"""A transaction starts no message after this time, because others wait for it."""

WAITS_APART = 5
"""The delay of a message that another consumer is processing, as a multiple of the time that such messages cost."""

LOST_BATCHES = 1
"""The deliveries in addition to `max_delivery_attempts`: a message may lose the claim of its first delivery before its
work begins. With few deliveries left, a message is delivered alone (`redeliver_alone`)."""

SHORT_WAIT = 0.02
"""The longest wait for the mark of a redelivered message. Its last consumer may still be at work, and the others may
have to wait for many such messages, one after the other."""

POLL_SECONDS = 1.0
MOST_ATTEMPTS = 1_000_000_000
MAX_SUSPECTS = 10_000
LONGEST_DELAY = 60.0
_log = logging.getLogger(__name__)


class IdempotentConsumer:
    """A consumer of a group. Any number can compete, in threads (one consumer per thread) and processes.

    An outage does not count as an attempt. But work may also break its own connection every time. So the first lost
    connection is forgiven. After that the message is processed alone, and if the connection is lost again while the
    database answers, this counts as a failed attempt.

    `event_id` returns the event of a message: messages with the same event are duplicates. The default is the message
    id. If a sender may send an event twice, use an id from the payload.
    """

    def __init__(
        self,
        run: Run,
        topic: str,
        group: str,
        handler: Handler,
        publishes: str | None = None,
        *,
        event_id: Callable[[Message], str | UUID] = lambda message: message.id,
        batch_size: int = 100,
        claim_timeout: float = defaults.CLAIM_TIMEOUT_SECONDS,
        max_delivery_attempts: int = defaults.MAX_DELIVERY_ATTEMPTS,
        retry_delay: float = 1.0,
        relay_lease: float = LEASE_SECONDS,
    ) -> None:
        check_count("batch_size", batch_size, least=1)
        check_count("max_delivery_attempts", max_delivery_attempts, least=1, most=MOST_ATTEMPTS)
        check_seconds("retry_delay", retry_delay)
        check_function("event_id", event_id)
        check_seconds("relay_lease", relay_lease, above_zero=True)
        self.monitor = Monitor(f"{group} on {topic}")
        self._run = run
        self._group = group
        self._handler = handler
        self._event_id = event_id
        self._batch_size = batch_size
        self._retry_delay = retry_delay
        self._wait = min(WAIT_SECONDS, claim_timeout / 4) if claim_timeout else WAIT_SECONDS
        self._relay_lease = relay_lease
        self._outbox = Outbox(run, publishes) if publishes is not None else None
        self._max_attempts = max_delivery_attempts
        self._reader = run.reader(
            topic,
            group=group,
            claim_timeout=claim_timeout,
            max_delivery_attempts=max_delivery_attempts + LOST_BATCHES,
            redeliver_alone=True,
        )
        self._processed = ProcessedMessages(run, topic, group)
        self._stopping = False
        self._postponing_since: float | None = None
        self._interruption: TickLakeError | None = None
        self._begun = False
        self._life = ""
        self._ended_by: Message | None = None
        self._suspects: dict[str, None] = {}

    def run(self) -> None:
        """Processes messages and relays the results until `stop()`. Waits for a database that does not answer."""
        with self._relaying() as relay:
            while not self._stopping:
                if relay is not None and relay.error is not None:
                    raise relay.error
                try:
                    self.process(POLL_SECONDS)
                except INTERRUPTIONS as error:
                    self._interrupted(error)
                    time.sleep(OUTAGE_PAUSE)

    def run_until_caught_up(self) -> int:
        """Processes messages and relays the results until the group has none left, or until `stop()`.

        Returns the number of messages that this consumer has acknowledged or made dead letters. Waits for messages that
        other consumers hold, and for those that failed and are tried again later. Raises the error of an outage after a
        minute without progress. Raises `ResultsNotPublished` if another relay is active for longer than a lease, or if
        publishing fails.
        """
        before = self._reader.settled
        self._catch_up(Patience())
        if self._outbox is not None:
            with Relay(self._run, self._outbox.topic, lease=self._relay_lease) as relay:
                left = relay.drain()
            if left and not self._stopping:
                raise ResultsNotPublished(topic=self._outbox.topic, count=left)
        return self._reader.settled - before

    def process(self, timeout: float = POLL_SECONDS) -> int:
        """Processes the next messages. Waits up to `timeout` for the first. Fills the outbox.

        Returns the number of messages that are acknowledged or dead letters now. Others may come again.
        """
        before = self._reader.settled
        self._process_next(timeout)
        return self._reader.settled - before

    def _catch_up(self, patience: Patience) -> None:
        """Only the store knows whether messages are left: a poll also finds none during an outage."""
        timeout, settled = 0.0, self._reader.settled
        while not self._stopping:
            try:
                if not self._process_next(timeout) and self._run.groups.lag(self._reader.topic, self._group) == 0:
                    return
                problem = self._interruption or self._reader.problem
            except INTERRUPTIONS as error:
                self._interrupted(error)
                problem = error
            if self._reader.settled > settled:
                patience.renew()
            timeout, settled = 0.0 if self._reader.settled > settled else POLL_SECONDS, self._reader.settled
            if problem is not None:
                patience.wait(problem)

    def _process_next(self, timeout: float) -> bool:
        """Processes the next messages. Returns whether there were any."""
        self._interruption = None
        messages = self._reader.poll_many(self._batch_size, timeout)
        if not messages:
            self._postponing_since = None
        self._process_polled(messages)
        return bool(messages)

    def _process_polled(self, messages: Sequence[Message]) -> None:
        try:
            deliveries = self._skip_done(self._with_event_ids(messages))
            while deliveries:
                deliveries = self._extend(self._work(deliveries))
        except INTERRUPTIONS as error:
            self._release_after_outage(messages, error)
        except BaseException as error:
            self._fail_what_ended(error)
            raise

    def stop(self) -> None:
        """Makes `run` return after the current messages. Can be called from any thread or signal handler."""
        self._stopping = True
        self._reader.wake()

    def close(self) -> None:
        """Stops, and releases all claims that are not acknowledged."""
        self.stop()
        self._reader.close()

    def __enter__(self) -> IdempotentConsumer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _with_event_ids(self, messages: Sequence[Message]) -> list[Delivery]:
        """Reads the event ids. A message without a valid one fails."""
        found = []
        for message in messages:
            try:
                found.append(Delivery(uuid_of(self._event_id(message)), message))
            except Exception as error:
                self._fail(message, error)
            except BaseException:
                self._ended_by = message
                raise
        return found

    def _skip_done(self, deliveries: list[Delivery]) -> list[Delivery]:
        """Acknowledges duplicates and returns the others. This is fast, because it needs no transaction."""
        if not deliveries:
            return []
        known = self._processed.find([delivery.event_id for delivery in deliveries])
        done = [delivery.message for delivery in deliveries if delivery.event_id in known.done]
        fresh = [delivery for delivery in deliveries if delivery.event_id not in known.done]
        self._reader.ack_many(done)
        self.monitor.counter("duplicates_skipped").add(len(done))
        for delivery in fresh:
            if delivery.message.published_at_ms < known.kept_since_ms:
                self._warn("REPLAY_OLDER_THAN_MARKS", delivery.message, "it may have been processed before")
        return fresh

    def _work(self, deliveries: list[Delivery]) -> list[Delivery]:
        """Processes deliveries in one transaction and returns those that are left.

        Further deliveries of the same event are left: after the commit they are duplicates. Suspects are processed
        alone.
        """
        firsts, repeated = first_of_each_event(deliveries)
        suspects = [delivery for delivery in firsts if delivery.message.id in self._suspects]
        others = [delivery for delivery in firsts if delivery.message.id not in self._suspects]
        left = self._process_together(others) if others else []
        for delivery in suspects:
            self._process_alone(delivery)
        return left + repeated

    def _process_together(self, deliveries: list[Delivery]) -> list[Delivery]:
        """Tries one transaction; then one with savepoints, which cost two round trips each; then each alone."""
        if all(delivery.message.attempts == 1 for delivery in deliveries):
            try:
                return self._transact(deliveries, nullcontext)
            except OUTAGES:
                raise
            except Exception:
                _log.debug("One of %d messages failed: repeating with a savepoint for each", len(deliveries))
        try:
            return self._transact(deliveries, Transaction.savepoint)
        except OUTAGES:
            raise
        except Exception:
            _log.debug("The transaction of %d messages failed: repeating each alone", len(deliveries))
        for delivery in deliveries:
            self._process_alone(delivery)
        return []

    def _process_alone(self, delivery: Delivery) -> None:
        """Processes one message in a separate transaction. An error after its work has begun is its own failure."""
        suspected = delivery.message.id in self._suspects
        try:
            self._transact([delivery], nullcontext)
        except OUTAGES as error:
            if not (suspected and self._begun and self._answers()):
                raise
            self._fail(delivery.message, error)
        except Exception as error:
            if isinstance(error, TickLakeError) and not self._begun:
                raise
            self._fail(delivery.message, error)

    def _answers(self) -> bool:
        """Returns whether a small write succeeds and the server was not restarted since the work began."""
        probe = [str(uuid4())]
        try:
            with self._run.transaction(patient=False) as transaction:
                self._processed.mark(probe, transaction)
                self._processed.unmark(probe, transaction)
        except INTERRUPTIONS:
            return False
        return transaction.life == self._life

    def _transact(self, deliveries: Sequence[Delivery], part: Part) -> list[Delivery]:
        self._begun = False
        try:
            return self._transact_all(deliveries, part)
        except OUTAGES:
            if self._begun:
                self._suspect(deliveries)
            raise

    def _suspect(self, deliveries: Sequence[Delivery]) -> None:
        self._suspects |= dict.fromkeys(delivery.message.id for delivery in deliveries)
        for message_id in list(self._suspects)[:-MAX_SUSPECTS]:
            del self._suspects[message_id]

    def _transact_all(self, deliveries: Sequence[Delivery], part: Part) -> list[Delivery]:
        with self._run.transaction() as transaction, self.monitor.percentiles("transaction").timed():
            self._life = transaction.life
            outcome = self._attempt(deliveries, transaction, part)
            faults.reach("consumer.commit")
        faults.reach("consumer.committed")
        self._settle(outcome)
        return outcome.left

    def _attempt(self, deliveries: Sequence[Delivery], transaction: Transaction, part: Part) -> Outcome:
        outcome, end = Outcome(), time.monotonic() + TRANSACTION_SECONDS
        faults.reach("consumer.mark")
        event_ids = [delivery.event_id for delivery in deliveries]
        again = any(delivery.message.attempts > 1 for delivery in deliveries)
        wait = min(self._wait, SHORT_WAIT) if again else self._wait
        marked = self._processed.mark(event_ids, transaction, wait=wait)
        for delivery in deliveries:
            begun = outcome.finished or outcome.failed
            if delivery.event_id in marked.elsewhere:
                outcome.elsewhere.append(delivery.message)
            elif delivery.event_id not in marked.ours:
                outcome.duplicates.append(delivery.message)
            elif begun and time.monotonic() > end:
                outcome.left.append(delivery)
            else:
                self._handle(delivery, transaction, part, outcome)
        undone = [*outcome.left, *(delivery for delivery, _ in outcome.failed)]
        faults.reach("consumer.unmark")
        self._processed.unmark([delivery.event_id for delivery in undone], transaction)
        faults.reach("consumer.outbox")
        if self._outbox is not None:
            self._outbox.add(outcome.results, transaction)
        faults.reach("consumer.ack")
        self._reader.ack_many(outcome.finished + outcome.duplicates, connection=transaction)
        return outcome

    def _handle(self, delivery: Delivery, transaction: Transaction, part: Part, outcome: Outcome) -> None:
        try:
            with part(transaction):
                self._begun = True
                faults.reach("consumer.work")
                results = self._results(delivery, self._handler(copied(delivery.message.payload), transaction))
                transaction.check_open()
        except OUTAGES:
            raise
        except Exception as error:
            transaction.check_open()
            if part is nullcontext:
                raise
            outcome.failed.append((delivery, error))
        except BaseException:
            self._ended_by = delivery.message
            raise
        else:
            outcome.results += results
            outcome.finished.append(delivery.message)

    def _results(self, delivery: Delivery, returned: Payload | Iterable[Payload] | None) -> list[Result]:
        if returned is None:
            return []
        if self._outbox is None:
            raise NowhereToPublish(kind=type(returned).__name__)
        return [
            self._outbox.result(delivery.event_id, self._group, place, payload)
            for place, payload in enumerate(payloads_of(returned))
        ]

    def _settle(self, outcome: Outcome) -> None:
        self.monitor.counter("messages_processed").add(len(outcome.finished))
        self.monitor.counter("duplicates_skipped").add(len(outcome.duplicates))
        self.monitor.window("throughput_per_sec").add(len(outcome.finished))
        for message in outcome.finished:
            self._suspects.pop(message.id, None)
        for delivery, error in outcome.failed:
            self._fail(delivery.message, error)
        if outcome.finished or outcome.failed or outcome.duplicates:
            self._postponing_since = None
        self._postpone(outcome.elsewhere)

    def _postpone(self, messages: Sequence[Message]) -> None:
        """Releases messages that another consumer is processing. The more time they cost, the later they come again.

        So new messages are also processed if another consumer hangs, however many messages it has.
        """
        if not messages:
            return
        now = time.monotonic()
        if self._postponing_since is None:
            self._postponing_since = now
        spent = max(self._wait, now - self._postponing_since)
        _log.debug("Another consumer is processing %d messages of group %s", len(messages), self._group)
        self._reader.release(messages, delay=max(self._retry_delay, min(LONGEST_DELAY, WAITS_APART * spent)))

    def _extend(self, deliveries: list[Delivery]) -> list[Delivery]:
        """Extends the claims. Returns the deliveries that are still held."""
        held = self._reader.extend([delivery.message for delivery in deliveries])
        return [delivery for delivery, ours in zip(deliveries, held, strict=True) if ours]

    def _fail_what_ended(self, error: BaseException) -> None:
        """Counts an exception that ends the consumer as a failed attempt. Otherwise it would end every consumer.

        A KeyboardInterrupt does not count: it comes from an operator.
        """
        ended_by, self._ended_by = self._ended_by, None
        if ended_by is not None and not isinstance(error, KeyboardInterrupt):
            with suppress(*INTERRUPTIONS):  # then the claim expires, which also counts
                self._fail(ended_by, error)

    def _fail(self, message: Message, error: BaseException) -> None:
        delay = pause_after(message.attempts, first=self._retry_delay, longest=LONGEST_DELAY)
        self.monitor.counter("messages_failed").add()
        self._warn("MESSAGE_FAILED", message, f"attempt {message.attempts}: {error_text(error)}")
        self._reader.fail(message, error, delay=delay, last=message.attempts >= self._max_attempts)

    def _release_after_outage(self, messages: Sequence[Message], error: TickLakeError) -> None:
        """Releases messages after an error of the database. It does not count as an attempt."""
        self._interrupted(error)
        with suppress(*INTERRUPTIONS):  # then the claims expire
            self._reader.release(messages, delay=self._retry_delay)

    def _interrupted(self, error: TickLakeError) -> None:
        self._interruption = error
        self.monitor.errors.record("CONSUMER_INTERRUPTED", error)
        _log.warning("Consumer %s: %s", self._group, error)

    def _warn(self, event: str, message: Message, what: str) -> None:
        self.monitor.errors.record(event, what, f"message {message.id}")
        _log.warning("%s topic=%s group=%s message=%s: %s", event, message.topic, self._group, message.id, what)

    @contextmanager
    def _relaying(self) -> Iterator[Relay | None]:
        if self._outbox is None:
            yield None
            return
        with Relay(self._run, self._outbox.topic, lease=self._relay_lease) as relay:
            thread = threading.Thread(target=relay.run, name=f"relay to {self._outbox.topic}", daemon=True)
            thread.start()
            try:
                yield relay
            finally:
                relay.stop()
                thread.join()
