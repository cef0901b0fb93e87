"""The outbox of a topic (`outbox_messages`): results are stored with the work, and published later."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID, uuid5

from google.protobuf.message import Message as Payload

from ticklake.checks.numbers import check_seconds
from ticklake.consumer.processed import CHUNK, PACKAGE
from ticklake.database import Listener, Transaction
from ticklake.database.names import check_name
from ticklake.text import error_text
from ticklake.topics import Run
from ticklake.topics.envelope import Envelope, client_clock_ms, wrap
from ticklake.topics.store import baton_topic, check_not_reserved, check_size, count_fitting, in_parts

COUNT_LIMIT = 1_000_000
STILL_SECONDS = 60.0
"""After this time without a statement, the server ends the transaction of a relay that has locked messages."""

_log = logging.getLogger(__name__)


class Result(NamedTuple):
    """A message that results from an event."""

    event_id: str
    envelope: Envelope


class Row(NamedTuple):
    """A message in the outbox and its id there."""

    id: int
    envelope: Envelope


class Attempts(NamedTuple):
    """The failed attempts of the oldest unsent message (`head`), and the age of the last one."""

    failed: int
    age_ms: int | None
    head: int = 0


class Outbox:
    """The messages to publish on a topic, in order."""

    def __init__(self, run: Run, topic: str) -> None:
        check_name("topic", baton_topic(check_not_reserved(topic)))
        run.prepare(PACKAGE)
        self.topic = topic
        self._run = run
        self._channel = f"outbox rows/{topic}"

    def result(self, event_id: str, group: str, place: int, payload: Payload) -> Result:
        """Returns result number `place` of an event. Its message id is always the same, so it is published once."""
        message_id = uuid5(UUID(event_id), f"{group}/{self.topic}/{place}")
        return Result(event_id, check_size(wrap(payload, client_clock_ms(), str(message_id))))

    def add(self, results: Sequence[Result], connection: Transaction) -> None:
        """Adds results to the outbox. They are published after the commit."""
        if not results:
            return
        events = iter(result.event_id for result in results)
        for part in in_parts([result.envelope for result in results]):
            rows = [(next(events), e.message_id, e.timestamp, e.data.hex()) for e in part]
            connection.sql(PACKAGE).add_to_outbox(topic=self.topic, rows=json.dumps(rows))
        connection.notify(self._channel)

    def listen(self) -> Listener:
        """Opens a listener that waits for the next `add`."""
        return self._run.listen(self._channel)

    def attempts(self) -> Attempts | None:
        """Returns the attempts of the oldest unsent message; None if everything is sent."""
        with self._run.reading() as view:
            rows = view.sql(PACKAGE).outbox_head(topic=self.topic)
        return Attempts(*rows[0]) if rows else None

    def unsent(self, limit: int, connection: Transaction) -> list[Row]:
        """Returns the oldest unsent messages, up to 16 MiB but at least one. Mark them in the same transaction.

        Raises `LockNotAvailable` if another transaction has locked them.
        """
        still_ms = round(STILL_SECONDS * 1000)
        sql = connection.sql(PACKAGE)
        found = sql.unsent(topic=self.topic, limit=limit, still_ms=still_ms)
        ids = [id_ for id_, _ in found[: count_fitting(size for _, size in found)]]
        rows = sql.results(ids=json.dumps(ids)) if ids else []
        return [Row(id_, Envelope(message_id, timestamp, data)) for id_, message_id, timestamp, data in rows]

    def count_unsent(self) -> int:
        """Returns the number of unsent messages, up to a million."""
        with self._run.reading() as view:
            ((unsent, _),) = view.sql(PACKAGE).backlog(topic=self.topic, limit=COUNT_LIMIT)
        return int(unsent)

    def mark_sent(self, rows: Sequence[Row], connection: Transaction) -> None:
        """Marks messages as published. Use the transaction that publishes them."""
        connection.sql(PACKAGE).mark_sent(ids=json.dumps([row.id for row in rows]))

    def record_attempt(self, ids: Sequence[int], error: BaseException) -> None:
        """Records a failed attempt to publish these rows. The next attempt waits from now on."""
        text = error_text(error)
        with self._run.transaction(durable=False) as transaction:
            transaction.sql(PACKAGE).record_attempt(ids=json.dumps(list(ids)), error=text)

    def prune(self, max_age: float) -> int:
        """Removes messages sent more than `max_age` seconds ago, in small transactions. Returns how many."""
        check_seconds("max_age", max_age)
        before = self._run.now_ms() - round(max_age * 1000)
        removed, rows = 0, CHUNK
        while rows == CHUNK:
            with self._run.transaction() as transaction:
                rows = len(transaction.sql(PACKAGE).prune_outbox(topic=self.topic, before=before, limit=CHUNK))
            removed += rows
        _log.info("Removed %d sent outbox messages for %s", removed, self.topic)
        return removed
