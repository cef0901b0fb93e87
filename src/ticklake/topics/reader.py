"""Reads a topic: claim, work, acknowledge. Only its holder can acknowledge, extend or release a claim."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import NamedTuple, TypeVar

from google.protobuf.message import Message as Payload

from ticklake.checks.numbers import check_count, check_seconds, deadline_after
from ticklake.database import Listener, Transaction
from ticklake.database.errors import DatabaseUnavailable, TransactionAborted
from ticklake.database.retry import retry_while_unavailable
from ticklake.errors import TickLakeError
from ticklake.monitoring import Window
from ticklake.text import message_text
from ticklake.topics.envelope import unwrap
from ticklake.topics.errors import TopicClosed, UndecodableMessage
from ticklake.topics.held_claims import HeldClaims
from ticklake.topics.metrics import TopicMetrics
from ticklake.topics.store import Claim, Claimed, Consumer, TopicStore, is_baton

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")
_COUNTERS = ("messages_received", "messages_acknowledged", "stale_acks_rejected", "claim_attempts", "claim_conflicts",
             "read_errors", "ack_errors", "extend_errors", "release_errors", "dead_letter_errors",
             "dead_letters_added")  # fmt: skip
RETRY_MS = 200
GRACE_SECONDS = 1.0


class Message(NamedTuple):
    """A delivery of a message. `attempts` counts from 1. `claim_version` identifies the claim."""

    id: str
    topic: str
    payload: Payload
    published_at_ms: int
    attempts: int
    claim_version: int


class TopicReader:
    """A consumer of a group. Only one thread may poll. Any thread may acknowledge, extend, release and wake."""

    def __init__(
        self, store: TopicStore, consumer: Consumer, metrics: TopicMetrics, *, max_unacknowledged: int
    ) -> None:
        self.topic = consumer.topic
        self.group = consumer.group
        self.consumer = consumer.id
        self.monitor = metrics.add_monitor(f"{self.topic} reader of {self.group}", self.topic, self.group)
        self._store = store
        self._consumer = consumer
        self._metrics = metrics
        self._held = HeldClaims(max_unacknowledged, consumer.lease_ms)
        self._undecodable: deque[tuple[Claim, UndecodableMessage]] = deque()
        self._unreleased: deque[tuple[Claim, bool]] = deque(maxlen=10_000)
        """Claims that could not be released, with their `forgiven`. `close` tries again."""
        self.problem: TickLakeError | None = None
        """What prevented the last poll from delivering or removing messages; None if nothing did."""
        self._listener: Listener | None = None
        self._more = False
        self._woken = False
        self._closed = False
        for counter in _COUNTERS:
            self.monitor.counter(counter)
        self.monitor.gauge("messages_held", lambda: len(self._held))
        self._attempts, self._conflicts = Window(metrics.window_seconds), Window(metrics.window_seconds)
        self.monitor.gauge("claim_conflict_ratio", self._conflict_ratio)

    def poll(self, timeout: float) -> Message | None:
        """Claims and returns the next message; None if there is none for `timeout` seconds."""
        messages = self.poll_many(1, timeout)
        return messages[0] if messages else None

    def receive(self) -> Message:
        """Claims and returns the next message; waits without a limit. Raises `TopicClosed` if the reader is closed."""
        while True:
            messages = self._poll(1, None)
            if messages:
                return messages[0]

    def poll_many(self, limit: int, timeout: float) -> list[Message]:
        """Claims up to `limit` messages as soon as there is one; none after the timeout or `wake()`.

        They have at most 16 MiB together, unless a single message is larger.
        """
        check_count("limit", limit, least=1)
        return self._poll(limit, deadline_after(timeout, time.monotonic()))

    def ack(self, message: Message) -> bool:
        """Acknowledges a message for its group. Returns False, and warns, if the claim was lost. Can be repeated."""
        return self.ack_many((message,))[0]

    def ack_many(self, messages: Iterable[Message], *, connection: Transaction | None = None) -> list[bool]:
        """Acknowledges messages, with `connection` when that transaction commits. Returns False for each lost claim."""
        claims = _claims(messages)
        if not claims:
            return []
        if connection is not None:
            done, new = self._store.ack(self._consumer, claims, connection)
            connection.after_commit(lambda: self._acknowledged(claims, new, done.count(False)))
        else:
            done, new = self._retry("ack_errors", lambda: self._store.ack(self._consumer, claims))
            self._acknowledged(claims, new, done.count(False))
        for claim, accepted in zip(claims, done, strict=True):
            if not accepted:
                self._warn("STALE_ACK_REJECTED", claim.message_id, f"claim {claim.version} was lost")
        return done

    def extend(self, messages: Iterable[Message]) -> list[bool]:
        """Extends claims to `claim_timeout` from now. Call it every third of that time. False for lost claims."""
        claims = _claims(messages)
        held = self._retry("extend_errors", lambda: self._store.extend(self._consumer, claims)) if claims else []
        self._held.renew([claim for claim, mine in zip(claims, held, strict=True) if mine])
        self._forget([claim for claim, mine in zip(claims, held, strict=True) if not mine])
        return held

    def release(self, messages: Iterable[Message], *, delay: float = 0.0) -> list[bool]:
        """Releases claims: the group gets the messages again after `delay` seconds. This counts as no attempt."""
        check_seconds("delay", delay)
        claims = _claims(messages)
        try:
            return self._release(claims, delay, forgiven=True) if claims else []
        finally:
            self._forget(claims)  # last: after an outage, a poll releases all claims that are not held

    def fail(self, message: Message, error: BaseException | str, *, delay: float = 0.0, last: bool = False) -> bool:
        """Reports failed work. Returns True if the message is now a dead letter; else it comes again after `delay`.

        `last`: makes it a dead letter even if it has attempts left.
        """
        check_seconds("delay", delay)
        (claim,) = claims = _claims((message,))
        try:
            if last or claim.attempts >= self._consumer.max_attempts:
                with self._remembering(claims, forgiven=True):
                    return self._bury(claim, error)
            self._release(claims, delay, forgiven=False)
            return False
        finally:
            self._forget(claims)

    def is_suspect(self, message: Message) -> bool:
        """Returns whether this message may be what ended its process. With `redeliver_alone` it came alone."""
        return message.attempts > 1 and message.attempts >= min(3, self._consumer.max_attempts - 1)

    @property
    def settled(self) -> int:
        """The number of messages that this reader has acknowledged or made dead letters."""
        acknowledged, dead = self.monitor.counter("messages_acknowledged"), self.monitor.counter("dead_letters_added")
        return acknowledged.value + dead.value

    def wake(self) -> None:
        """Makes a waiting `poll` return early. Can be called from any thread or signal handler."""
        self._woken = True
        if self._listener is not None:
            self._listener.wake()

    def close(self) -> None:
        """Releases all claims that are not acknowledged. Can be repeated if it fails or is interrupted.

        If this thread has a transaction open, which may acknowledge some of them, they are released after it. Does
        nothing in a forked process: the claims belong to the parent.
        """
        if self._store.schema.inherited:
            return
        self._closed = True
        self.wake()
        try:
            self._release_all()
        finally:
            if self._listener is not None:
                self._listener.close()
            self._metrics.remove_monitor(self.monitor, self.topic, self.group)

    def __enter__(self) -> TopicReader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _poll(self, limit: int, deadline: float | None) -> list[Message]:
        hinted = False
        while True:
            self._check_open()
            found = self._claim(limit)
            if messages := self._open_all(found):
                return messages
            if (found.claims or found.dead) and not _has_passed(deadline, GRACE_SECONDS):
                continue  # only dead letters were found: the next messages may be ready
            if hinted:
                self.monitor.counter("claim_conflicts").add()
                self._conflicts.add()
            if self._woken or _has_passed(deadline):
                self._woken = False
                return []
            hinted = self._wait(found, deadline)

    def _claim(self, limit: int) -> Claimed:
        """Claims what is ready now. If the database does not answer, the caller tries again soon."""
        room = min(limit, self._held.room())
        if room <= 0:
            return Claimed(wait_ms=self._held.next_expiry_ms())
        try:
            if not self.monitor.healthy:
                self._store.release_unknown(self._consumer, self._held.message_ids())
            with self.monitor.percentiles("claim_latency").timed():
                found = self._store.claim(self._consumer, room, more=self._more)
        except (DatabaseUnavailable, TransactionAborted) as error:
            self.problem = error
            self._unavailable("read_errors", error)
            return Claimed(wait_ms=RETRY_MS)
        self.problem = None
        self.monitor.healthy = True
        self.monitor.counter("claim_attempts").add()
        self._attempts.add()
        self._more = len(found.claims) == room
        return found

    def _wait(self, found: Claimed, deadline: float | None) -> bool:
        """Waits for messages. Returns whether a hint announced some."""
        limits = [] if deadline is None else [deadline - time.monotonic()]
        limits += [] if found.wait_ms is None else [found.wait_ms / 1000]
        limits += [RETRY_MS / 1000] if self._undecodable else []
        limit = max(0.0, min(limits)) if limits else None
        if self._listener is not None:
            try:
                return self._listener.wait(limit)
            except (OSError, ValueError):
                # Closed by another thread. The next poll raises `TopicClosed`.
                if not self._closed:
                    raise
                return False
        try:
            self._listener = self._store.listen(self.topic)  # the next claim finds earlier messages
        except (DatabaseUnavailable, TransactionAborted) as error:
            self._unavailable("read_errors", error)
            time.sleep(min(RETRY_MS / 1000, RETRY_MS if limit is None else limit))
        if self._closed and self._listener is not None:
            self._listener.close()
        return False

    def _open_all(self, found: Claimed) -> list[Message]:
        for message_id in found.dead:
            self._report_dead_letter(message_id, "delivered too often and never acknowledged")
        self._held.add(found.claims)
        messages = [message for claim in found.claims if (message := self._open(claim))]
        self._bury_undecodable()
        if received := sum(not is_baton(self.topic, message.id) for message in messages):
            self.monitor.counter("messages_received").add(received)
            self.monitor.window("read_throughput_per_sec").add(received)
            self._metrics.received(received)
        return messages

    def _open(self, claim: Claim) -> Message | None:
        if claim.previous_holder is not None:
            self._metrics.add("stuck_messages_reassigned")
            self._warn("STUCK_MESSAGE_REASSIGNED", claim.message_id, f"{claim.previous_holder} let its claim expire")
        try:
            opened = unwrap(claim.data)
        except UndecodableMessage as error:
            self._undecodable.append((claim, error))
            return None
        return Message(claim.message_id, self.topic, opened.payload, opened.timestamp, claim.attempts, claim.version)

    def _acknowledged(self, claims: Sequence[Claim], new: int, stale: int) -> None:
        self._forget(claims)
        for counter, count in (("messages_acknowledged", new), ("stale_acks_rejected", stale)):
            self.monitor.counter(counter).add(count)
            self._metrics.add(counter, count)

    def _release(self, claims: Sequence[Claim], delay: float, *, forgiven: bool) -> list[bool]:
        delay_ms = round(delay * 1000)
        with self._remembering(() if self._closed else claims, forgiven):
            return self._retry(
                "release_errors", lambda: self._store.release(self._consumer, claims, delay_ms, forgiven=forgiven)
            )

    @contextmanager
    def _remembering(self, claims: Sequence[Claim], forgiven: bool) -> Iterator[None]:
        """Remembers claims for `close` if the block fails."""
        try:
            yield
        except BaseException:
            self._unreleased += [(claim, forgiven) for claim in claims]
            raise

    def _release_all(self) -> None:
        if self._store.schema.inherited:
            return
        if (transaction := self._store.schema.open_transaction()) is not None:
            transaction.after_end(self._release_all)
            return
        if claims := self._held.claims():
            self._release(claims, 0, forgiven=True)
            self._held.forget(claims)
        self._retry_releases()

    def _retry_releases(self) -> None:
        """Tries once more to release claims. If that fails too, they expire."""
        for forgiven in {forgiven for _, forgiven in self._unreleased}:
            claims = [claim for claim, is_forgiven in self._unreleased if is_forgiven is forgiven]
            try:
                self._store.release(self._consumer, claims, 0, forgiven=forgiven)
            except TickLakeError as error:
                _log.debug("%d claims are held until their leases end: %s", len(claims), error)
                return
        self._unreleased.clear()

    def _bury_undecodable(self) -> None:
        """Makes undecodable messages dead letters. If that fails, the next poll tries again. No other message waits."""
        while self._undecodable:
            claim, reason = self._undecodable[0]
            try:
                buried = self._store.bury(self._consumer, claim, reason)
            except TickLakeError as error:
                self.problem = error
                self.monitor.healthy = False
                self.monitor.counter("dead_letter_errors").add()
                self._warn("DEAD_LETTER_DELAYED", claim.message_id, str(error))
                return
            self._undecodable.popleft()
            self._forget((claim,))
            if buried:
                self._report_dead_letter(claim.message_id, message_text(reason))

    def _bury(self, claim: Claim, error: BaseException | str) -> bool:
        buried = self._retry("dead_letter_errors", lambda: self._store.bury(self._consumer, claim, error))
        if buried:
            self._report_dead_letter(claim.message_id, message_text(error))
        return buried

    def _report_dead_letter(self, message_id: str, reason: str) -> None:
        self.monitor.counter("dead_letters_added").add()
        self._metrics.add("dead_letters_added")
        self._warn("DEAD_LETTER", message_id, reason)

    def _retry(self, errors: str, act: Callable[[], _Result]) -> _Result:
        self._store.schema.check_nesting()  # what the open transaction has changed is locked: this would wait for ever
        return retry_while_unavailable(act, on_error=lambda error: self._unavailable(errors, error))

    def _forget(self, claims: Sequence[Claim]) -> None:
        if self._held.forget(claims) and self._listener is not None:
            self._listener.wake()  # a poll may be waiting for room

    def _unavailable(self, counter: str, error: TickLakeError) -> None:
        self.monitor.healthy = False
        self.monitor.counter(counter).add()
        self.monitor.errors.record("DATABASE_UNAVAILABLE", error)

    def _warn(self, event: str, message_id: str, what: str) -> None:
        self.monitor.errors.record(event, what, f"message {message_id}")
        _log.warning("%s topic=%s group=%s message=%s: %s", event, self.topic, self.group, message_id, what)

    def _conflict_ratio(self) -> float:
        looks = self._attempts.total
        return min(1.0, self._conflicts.total / looks) if looks else 0.0

    def _check_open(self) -> None:
        if self._closed:
            raise TopicClosed(end="reader", topic=self.topic)


def _has_passed(deadline: float | None, grace: float = 0.0) -> bool:
    return deadline is not None and time.monotonic() >= deadline + grace


def new_consumer_id() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


def _claims(messages: Iterable[Message]) -> list[Claim]:
    return [Claim(message.id, message.claim_version, message.attempts, b"") for message in messages]
