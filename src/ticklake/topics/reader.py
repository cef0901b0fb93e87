"""Reading: claim, work, acknowledge. A claim is a lease that only its holder can acknowledge, extend or give back."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import NamedTuple

from google.protobuf.message import Message as Payload

from ticklake.database import Listener, Transaction
from ticklake.errors import InvalidOption, TopicClosed, UndecodableMessage
from ticklake.topics.envelope import unwrap
from ticklake.topics.store import Claim, Claimed, Consumer, TopicStore

_log = logging.getLogger(__name__)


class Message(NamedTuple):
    """One delivery of a message. `attempts` is 1 the first time; `claim_version` is the claim's fence."""

    id: str
    topic: str
    payload: Payload
    published_at_ms: int
    attempts: int
    claim_version: int


class TopicReader:
    """One consumer of a group. Poll it from one thread; acknowledge, extend, release and wake it from any."""

    def __init__(self, store: TopicStore, consumer: Consumer, max_unacknowledged: int) -> None:
        self.topic = consumer.topic
        self.group = consumer.group
        self.consumer = consumer.id
        self._store = store
        self._consumer = consumer
        self._room = max_unacknowledged
        self._in_hand: dict[str, Claim] = {}
        self._lock = threading.Lock()
        self._listener: Listener | None = None
        self._woken = threading.Event()
        self._closed = False

    def poll(self, timeout: float) -> Message | None:
        """The next message, claimed; None after `timeout` seconds without one."""
        messages = self.poll_many(1, timeout)
        return messages[0] if messages else None

    def receive(self) -> Message:
        """The next message, however long it takes. Raises `TopicClosed` where the reader is closed meanwhile."""
        while True:
            messages = self._poll(1, None)
            if messages:
                return messages[0]

    def poll_many(self, limit: int, timeout: float) -> list[Message]:
        """Up to `limit` messages as soon as there is one; none after the timeout, or when somebody calls `wake()`."""
        if limit < 1:
            raise InvalidOption(option="limit", value=limit, allowed="at least 1")
        return self._poll(limit, time.monotonic() + timeout)

    def _poll(self, limit: int, deadline: float | None) -> list[Message]:
        while True:
            self._check_open()
            room = min(limit, self._room - len(self._in_hand))
            found = self._store.claim(self._consumer, room) if room > 0 else Claimed(())
            if messages := self._open_all(found):
                return messages
            if self._woken.is_set() or (deadline is not None and time.monotonic() >= deadline):
                self._woken.clear()
                return []
            self._wait(found, deadline)

    def _wait(self, found: Claimed, deadline: float | None) -> None:
        if self._listener is None:
            self._listener = self._store.listen(self.topic)  # what came before that is found by another look
            return
        limits = [] if deadline is None else [deadline - time.monotonic()]
        limits += [] if found.wait_ms is None else [found.wait_ms / 1000]
        self._listener.wait(max(0.0, min(limits)) if limits else None)

    def _open_all(self, found: Claimed) -> list[Message]:
        for message_id in found.dead:
            self._warn("DEAD_LETTER", message_id, "delivered too often and never acknowledged")
        with self._lock:
            self._in_hand |= {claim.message_id: claim for claim in found.claims}
        return [message for claim in found.claims if (message := self._open(claim))]

    def _open(self, claim: Claim) -> Message | None:
        if claim.taken_from is not None:
            self._warn("STUCK_MESSAGE_REASSIGNED", claim.message_id, f"{claim.taken_from} let its claim expire")
        try:
            opened = unwrap(claim.data)
        except UndecodableMessage as error:
            self._warn("DEAD_LETTER", claim.message_id, str(error))
            self._bury(claim, error)
            return None
        return Message(claim.message_id, self.topic, opened.payload, opened.timestamp, claim.attempts, claim.version)

    def ack(self, message: Message) -> bool:
        """Done with it, for the whole group; False, and a warning, where the claim was lost. It can be repeated."""
        return self.ack_many((message,))[0]

    def ack_many(self, messages: Iterable[Message], *, connection: Transaction | None = None) -> list[bool]:
        """With `connection`, they are acknowledged when that transaction commits."""
        claims = _claims(messages)
        done = self._store.ack(self._consumer, claims, connection) if claims else []
        for claim, accepted in zip(claims, done, strict=True):
            if not accepted:
                self._warn("STALE_ACK_REJECTED", claim.message_id, f"claim {claim.version} was lost")
        self._let_go(claims)
        return done

    def extend(self, messages: Iterable[Message]) -> list[bool]:
        """Hold them for another `claim_timeout` from now. Work that makes progress calls this every third of it."""
        claims = _claims(messages)
        held = self._store.extend(self._consumer, claims) if claims else []
        self._let_go([claim for claim, mine in zip(claims, held, strict=True) if not mine])
        return held

    def release(self, messages: Iterable[Message], *, delay: float = 0.0) -> list[bool]:
        """Give them back undone, for anyone in the group to take, after `delay` seconds. Counts as no attempt."""
        claims = _claims(messages)
        self._let_go(claims)
        return self._store.release(self._consumer, claims, round(delay * 1000)) if claims else []

    def fail(self, message: Message, error: BaseException | str, *, delay: float = 0.0) -> bool:
        """The work failed. False: it will be delivered again after `delay`. True: it is now a dead letter."""
        (claim,) = _claims((message,))
        self._let_go((claim,))
        if claim.attempts >= self._consumer.max_attempts:
            return self._store.bury(self._consumer, claim, error)
        self._store.release(self._consumer, (claim,), round(delay * 1000), forgiven=False)
        return False

    def wake(self) -> None:
        """Make a waiting `poll` return early; from any thread or signal handler."""
        self._woken.set()
        if self._listener is not None:
            self._listener.wake()

    def close(self) -> None:
        """Give back what is claimed and not acknowledged."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            claims = list(self._in_hand.values())
            self._in_hand.clear()
        self.wake()
        if claims:
            self._store.release(self._consumer, claims, 0)
        if self._listener is not None:
            self._listener.close()

    def __enter__(self) -> TopicReader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _bury(self, claim: Claim, error: BaseException | str) -> None:
        self._let_go((claim,))
        self._store.bury(self._consumer, claim, error)

    def _let_go(self, claims: Sequence[Claim]) -> None:
        with self._lock:
            for claim in claims:
                held = self._in_hand.get(claim.message_id)
                if held is not None and held.version <= claim.version:
                    del self._in_hand[claim.message_id]

    def _warn(self, event: str, message_id: str, what: str) -> None:
        _log.warning("%s topic=%s group=%s message=%s: %s", event, self.topic, self.group, message_id, what)

    def _check_open(self) -> None:
        if self._closed:
            raise TopicClosed(end="reader", topic=self.topic)


def new_consumer_id() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


def _claims(messages: Iterable[Message]) -> list[Claim]:
    return [Claim(message.id, message.claim_version, message.attempts, b"") for message in messages]
