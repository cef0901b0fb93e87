"""Topics on PostgreSQL. A claim is one call of `topic_claim()`, so no lock lasts longer than a round trip."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from ticklake import defaults
from ticklake.database import Schema, Transaction
from ticklake.database.errors import TransactionAborted, UniqueViolation
from ticklake.database.schema import Statements
from ticklake.text import error_text
from ticklake.topics.envelope import Envelope
from ticklake.topics.store import numbering
from ticklake.topics.store.store import PACKAGE, Claim, Claimed, Consumer, OpenTransaction, TopicStore, trace

LOCKED_MS = 50
"""The pause before the next claim if all available messages are locked by open transactions."""

MOST_AT_ONCE = 1_000_000
"""The most messages that one call claims, even if the caller's limit is higher."""

LOCK_TIMEOUT = "500ms"
"""The longest wait for a lock: of operators, of those who wait for them, and of indexers for the tracker."""

_Result = TypeVar("_Result")
SLOW_SECONDS = 0.005
REST = 20
"""A slower `look` reads index entries that vacuum could not remove. The next one waits 20 times as long."""

LONGEST_REST = 1.0
"""The server may be slow for another reason, and available messages must not wait long."""


class PostgresTopicStore(TopicStore):
    """The topics of one run's schema."""

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema)
        self._next_look: dict[tuple[str, str], float] = {}

    def _publish(self, topic: str, envelopes: Sequence[Envelope], connection: Transaction) -> int:
        message_ids, timestamps, data = map(list, zip(*envelopes, strict=True))
        publish = self.statements_in(connection).publish
        ((new,),) = publish(topic=topic, message_ids=message_ids, timestamps=timestamps, envelopes=data)
        return int(new)

    def claim(self, consumer: Consumer, limit: int, *, more: bool = False) -> Claimed:  # noqa: ARG002  always looks while it claims
        try:
            return self._claim(consumer, limit)
        except UniqueViolation:
            self.intervene(partial(_raise_reached, consumer))
            return self._claim(consumer, limit)

    def _claim(self, consumer: Consumer, limit: int) -> Claimed:
        with self._autocommit() as sql:
            rows = sql.claim(
                topic=consumer.topic,
                group=consumer.group,
                consumer=consumer.id,
                lease_ms=consumer.lease_ms,
                max_attempts=consumer.max_attempts,
                limit=min(limit, MOST_AT_ONCE),
                alone=consumer.alone,
            )
            if not rows:
                return Claimed(wait_ms=self._wait_ms(sql, consumer))
        claims = [
            Claim(id_, version, attempts, data, holder)
            for id_, version, attempts, holder, dead, data in rows
            if not dead
        ]
        return Claimed(self._with_data(consumer.topic, claims), [row[0] for row in rows if row[4]], 0)

    def _with_data(self, topic: str, claims: Sequence[Claim]) -> Sequence[Claim]:
        """Fetches large messages after their claim, because a slow consumer must not block its group."""
        missing = [claim.message_id for claim in claims if claim.data is None]
        if not missing:
            return claims
        with self._autocommit() as sql:
            found = dict(sql.envelopes(topic=topic, message_ids=json.dumps(missing)))
        whole = [
            claim if claim.data is not None else claim._replace(data=found.get(claim.message_id)) for claim in claims
        ]
        return [claim for claim in whole if claim.data is not None]  # the others were just removed by retention

    def intervene(self, act: Callable[[Transaction], _Result]) -> _Result:
        """Like the base method, but rolls back and tries again after a short wait for a lock.

        A consumer may poll while its own open transaction has acknowledged messages. If the poll waited for this
        transaction and this transaction for the acks, the database could not detect the deadlock.
        """
        deadline = time.monotonic() + defaults.SEND_PATIENCE_SECONDS
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

    def lock_groups(self, topic: str, transaction: Transaction) -> None:
        sql = transaction.sql(PACKAGE)
        sql.lock_joining()
        sql.lock_groups(topic=topic)

    def oldest_transaction(self) -> OpenTransaction | None:
        with self._autocommit() as sql:
            rows = sql.oldest_transaction()
        return OpenTransaction(*rows[0]) if rows else None

    def renumber(self) -> int | None:
        with self.schema.reading() as transaction:
            if not numbering.foreign_numbers_in(transaction):
                return None
        return self.intervene(numbering.replace)

    def _wait_ms(self, sql: Statements, consumer: Consumer) -> int | None:
        group, started = (consumer.topic, consumer.group), time.monotonic()
        if started < (next_look := self._next_look.get(group, 0.0)):
            return math.ceil(1000 * (next_look - started))
        ((wait_ms,),) = sql.look(topic=consumer.topic, group=consumer.group)
        ended = time.monotonic()
        if ended - started > SLOW_SECONDS:
            self._next_look[group] = ended + min(REST * (ended - started), LONGEST_REST)
        return LOCKED_MS if wait_ms == 0 else wait_ms

    def _acknowledge(self, sql: Statements, consumer: Consumer, claims: Sequence[Claim]) -> int:
        return sum(count for _, count in self._for_held(sql.ack, consumer, claims))

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
    """Corrects `reached` of a group that has a claim after it. Otherwise every claim would fail."""
    sql = transaction.sql(PACKAGE)
    sql.lock_position(topic=consumer.topic, group=consumer.group)
    sql.raise_reached(topic=consumer.topic, group=consumer.group)
