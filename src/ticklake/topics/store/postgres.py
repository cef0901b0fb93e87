"""Topics on PostgreSQL: a claim is one call of `topic_claim` in the run's schema, so no lock outlives a round trip."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from ticklake.database import Schema, Transaction
from ticklake.database.errors import TransactionAborted, UniqueViolation
from ticklake.database.schema import Statements
from ticklake.text import error_text
from ticklake.topics.envelope import Envelope
from ticklake.topics.retry import PATIENCE_SECONDS
from ticklake.topics.store import numbering
from ticklake.topics.store.store import PACKAGE, Claim, Claimed, Consumer, OpenTransaction, TopicStore, trace

LOCKED_MS = 50
"""How long to let an open transaction have what is free but locked, before the next look."""

MOST_AT_ONCE = 1_000_000
"""Claims at most this many messages in one call, whatever the caller's limit."""

LOCK_TIMEOUT = "500ms"
"""So long an operator's act waits for a lock, and others wait for it; so long an indexer waits for the tracker."""

_Result = TypeVar("_Result")
SLOW_SECONDS = 0.005
REST = 20
"""A look that takes longer than that walks through entries that vacuum could not remove: it rests 20 times as long."""

LONGEST_REST = 1.0
"""The server may have been slow for another reason: what becomes free must not be overlooked for long."""


class PostgresTopicStore(TopicStore):
    """The topics of one run's schema."""

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema)
        self._next_look: dict[tuple[str, str], float] = {}

    def _publish(self, topic: str, envelopes: Sequence[Envelope], connection: Transaction) -> int:
        message_ids, timestamps, data = map(list, zip(*envelopes, strict=True))
        publish = self.joined(connection).publish
        ((new,),) = publish(topic=topic, message_ids=message_ids, timestamps=timestamps, envelopes=data)
        return int(new)

    def claim(self, consumer: Consumer, limit: int, *, more: bool = False) -> Claimed:  # noqa: ARG002  looks as it claims
        try:
            return self._claim(consumer, limit)
        except UniqueViolation:
            self.intervene(partial(_raise_reached, consumer))
            return self._claim(consumer, limit)

    def _claim(self, consumer: Consumer, limit: int) -> Claimed:
        with self._alone() as sql:
            rows = sql.claim(
                topic=consumer.topic,
                group=consumer.group,
                consumer=consumer.id,
                lease_ms=consumer.lease_ms,
                max_attempts=consumer.max_attempts,
                limit=min(limit, MOST_AT_ONCE),
            )
            if not rows:
                return Claimed(wait_ms=self._wait_ms(sql, consumer))
        claims = [
            Claim(id_, version, attempts, data, by) for id_, version, attempts, by, dead, data in rows if not dead
        ]
        return Claimed(self._with_data(consumer.topic, claims), [row[0] for row in rows if row[4]], 0)

    def _with_data(self, topic: str, claims: Sequence[Claim]) -> Sequence[Claim]:
        """Fetches what did not come with its claim: one that stands still as it reads must not hold its group."""
        missing = [claim.message_id for claim in claims if claim.data is None]
        if not missing:
            return claims
        with self._alone() as sql:
            found = dict(sql.envelopes(topic=topic, message_ids=json.dumps(missing)))
        whole = [
            claim if claim.data is not None else claim._replace(data=found.get(claim.message_id)) for claim in claims
        ]
        return [claim for claim in whole if claim.data is not None]  # the others have just been removed from the topic

    def intervene(self, act: Callable[[Transaction], _Result]) -> _Result:
        """It lets go of everything when it has waited for a lock, and begins again.

        A consumer may poll while a transaction of its own has acknowledged messages. If that poll had to wait for us,
        and we for its acks, both would wait for ever: the database sees no circle.
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                with self.schema.transaction() as transaction:
                    self.limit_waiting(transaction)
                    return act(transaction)
            except TransactionAborted:
                if time.monotonic() > deadline:
                    raise
            time.sleep(LOCKED_MS / 1000)

    def limit_waiting(self, transaction: Transaction) -> None:
        transaction.sql(PACKAGE).limit_waiting(lock_timeout=LOCK_TIMEOUT)

    def hold_groups(self, topic: str, transaction: Transaction) -> None:
        sql = transaction.sql(PACKAGE)
        sql.lock_joining()
        sql.lock_groups(topic=topic)

    def oldest_transaction(self) -> OpenTransaction | None:
        with self._alone() as sql:
            rows = sql.oldest_transaction()
        return OpenTransaction(*rows[0]) if rows else None

    def renumber(self) -> int | None:
        with self.schema.reading() as transaction:
            if not numbering.foreign_numbers_in(transaction):
                return None
        return self.intervene(numbering.replace)

    def _wait_ms(self, sql: Statements, consumer: Consumer) -> int | None:
        group, started = (consumer.topic, consumer.group), time.monotonic()
        if started < (rested := self._next_look.get(group, 0.0)):
            return math.ceil(1000 * (rested - started))
        ((wait_ms,),) = sql.look(topic=consumer.topic, group=consumer.group)
        ended = time.monotonic()
        if ended - started > SLOW_SECONDS:
            self._next_look[group] = ended + min(REST * (ended - started), LONGEST_REST)
        return LOCKED_MS if wait_ms == 0 else wait_ms

    def _acknowledge(self, sql: Statements, consumer: Consumer, claims: Sequence[Claim]) -> int:
        return sum(count for _, count in self._fenced(sql.ack, consumer, claims))

    def bury(self, consumer: Consumer, claim: Claim, error: BaseException | str) -> bool:
        with self.schema.autocommit() as transaction:
            found = transaction.sql(PACKAGE).bury(
                topic=consumer.topic,
                group=consumer.group,
                consumer=consumer.id,
                message_id=claim.message_id,
                claim_version=claim.version,
                error=error_text(error),
                traceback=trace(error),
            )
        return any(buried for (buried,) in found)


def _raise_reached(consumer: Consumer, transaction: Transaction) -> None:
    """The group met a claim of its own that its position knows nothing of. It must not meet it with every claim."""
    sql = transaction.sql(PACKAGE)
    sql.lock_position(topic=consumer.topic, group=consumer.group)
    sql.raise_reached(topic=consumer.topic, group=consumer.group)
