"""Publishes messages. They are durable when `send` returns."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import TracebackType

from google.protobuf.message import Message as Payload

from ticklake import defaults
from ticklake.database import Transaction
from ticklake.database.retry import retry_while_unavailable
from ticklake.topics.envelope import Envelope, client_clock_ms, wrap_all
from ticklake.topics.errors import TopicClosed
from ticklake.topics.metrics import TopicMetrics
from ticklake.topics.publisher import Publisher
from ticklake.topics.store import TopicStore, check_size, is_baton

_log = logging.getLogger(__name__)


class TopicWriter:
    """Writes to one topic of one run, from any number of threads."""

    def __init__(
        self,
        store: TopicStore,
        publisher: Publisher,
        topic: str,
        metrics: TopicMetrics,
        patience: float = defaults.SEND_PATIENCE_SECONDS,
    ) -> None:
        self.topic = topic
        self.monitor = metrics.add_monitor(f"{topic} writer", topic)
        self._store = store
        self._publisher = publisher
        self._metrics = metrics
        self._patience = patience
        self._latency = self.monitor.percentiles("write_latency")
        self._sent = self.monitor.counter("messages_sent")
        self._errors = self.monitor.counter("write_errors")
        self._rate = self.monitor.window("write_throughput_per_sec")
        self._closed = False

    def send(self, message: Payload, *, connection: Transaction | None = None) -> str:
        """Publishes a message and returns its id. With `connection`, it is published when that transaction commits."""
        return self.send_many((message,), connection=connection)[0]

    def send_many(self, messages: Iterable[Payload], *, connection: Transaction | None = None) -> list[str]:
        """Publishes all messages in this order, or none. Returns their ids."""
        envelopes = wrap_all(messages, client_clock_ms())
        self._check(envelopes)
        if envelopes and connection is not None:
            self._join(envelopes, connection)
        elif envelopes:
            # The ids are new, so all messages count as new, even after a retry.
            self._write(partial(self._publisher.publish, self.topic, envelopes, self._patience))
            self._count(len(envelopes))
        return [envelope.message_id for envelope in envelopes]

    def forward(self, envelopes: Sequence[Envelope], *, connection: Transaction | None = None) -> None:
        """Publishes messages that already have ids. Skips, and does not count, those that the topic already has."""
        self._check(envelopes)
        if envelopes and connection is not None:
            self._join(envelopes, connection)
        elif envelopes:
            self._write(
                lambda: retry_while_unavailable(
                    lambda: self._forward(envelopes), on_error=self._publisher.on_error, seconds=self._patience
                )
            )

    def close(self) -> None:
        """Closes the writer. Later calls raise `TopicClosed`."""
        self._closed = True
        self._metrics.remove_monitor(self.monitor, self.topic)

    def __enter__(self) -> TopicWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _check(self, envelopes: Sequence[Envelope]) -> None:
        if self._closed:
            raise TopicClosed(end="writer", topic=self.topic)
        for envelope in envelopes:
            check_size(envelope)

    def _forward(self, envelopes: Sequence[Envelope]) -> None:
        with self._store.schema.transaction() as transaction:
            self._join(envelopes, transaction)

    def _join(self, envelopes: Sequence[Envelope], connection: Transaction) -> None:
        new = self._store.publish(self.topic, envelopes, connection)
        batons = is_baton(self.topic, envelopes[0].message_id)  # which is always sent alone
        connection.after_commit(lambda: self._count(0 if batons else new))

    def _write(self, publish: Callable[[], object]) -> None:
        self._store.schema.check_process()
        self._store.schema.check_nesting()  # the leader would wait for this thread, and this thread for the leader
        try:
            started = time.perf_counter()
            publish()
            self._latency.record(time.perf_counter() - started)
        except Exception as error:
            self._errors.add()
            self.monitor.errors.record("WRITE_FAILED", error, f"topic {self.topic}")
            raise

    def _count(self, sent: int) -> None:
        self._sent.add(sent)
        self._rate.add(sent)
        self._metrics.published(sent)
        _log.debug("Published %d messages on %s", sent, self.topic)
