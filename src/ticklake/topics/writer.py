"""Publishing. What `send` has returned for is durable; senders who come at the same time share a commit."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from types import TracebackType

from google.protobuf.message import Message as Payload

from ticklake.database import Transaction
from ticklake.errors import TopicClosed
from ticklake.topics.envelope import Envelope, client_clock_ms, wrap
from ticklake.topics.store import TopicStore

_log = logging.getLogger(__name__)


class TopicWriter:
    """Writes to one topic of one run, from any number of threads."""

    def __init__(self, store: TopicStore, publisher: Publisher, topic: str) -> None:
        self.topic = topic
        self._store = store
        self._publisher = publisher
        self._closed = False

    def send(self, message: Payload, *, connection: Transaction | None = None) -> str:
        """Publish a message and return its id. With `connection`, it is published when that transaction commits."""
        return self.send_many((message,), connection=connection)[0]

    def send_many(self, messages: Iterable[Payload], *, connection: Transaction | None = None) -> list[str]:
        """Publish all of them, in this order, or none."""
        if self._closed:
            raise TopicClosed(end="writer", topic=self.topic)
        now = client_clock_ms()
        envelopes = [wrap(message, now) for message in messages]
        if envelopes and connection is not None:
            self._store.publish(self.topic, envelopes, connection)
        elif envelopes:
            self._publisher.publish(self.topic, envelopes)
        _log.debug("Published %d messages on %s", len(envelopes), self.topic)
        return [envelope.message_id for envelope in envelopes]

    def close(self) -> None:
        self._closed = True

    def __enter__(self) -> TopicWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class Publisher:
    """Publishes for all the writers of a run."""

    def __init__(self, store: TopicStore) -> None:
        self._store = store
        self._lock = threading.Lock()

    def publish(self, topic: str, envelopes: Sequence[Envelope]) -> None:
        with self._lock:
            self._store.publish(topic, envelopes)
