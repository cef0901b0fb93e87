"""Topics on PostgreSQL: a claim is one call of `topic_claim` in the run's schema, so no lock outlives a round trip."""

from __future__ import annotations

from collections.abc import Sequence

from ticklake.database import Transaction
from ticklake.database.schema import Statements
from ticklake.topics.envelope import Envelope
from ticklake.topics.store import PACKAGE, Claim, Claimed, Consumer, TopicStore, describe, trace

LOCKED_MS = 50
"""How long to let an open transaction have what is free but locked, before the next look."""


class PostgresTopicStore(TopicStore):
    """The topics of one run's schema."""

    def publish(self, topic: str, envelopes: Sequence[Envelope], connection: Transaction) -> None:
        message_ids, timestamps, data = map(list, zip(*envelopes, strict=True))
        self.joined(connection).publish(topic=topic, message_ids=message_ids, timestamps=timestamps, envelopes=data)

    def claim(self, consumer: Consumer, limit: int, *, more: bool = False) -> Claimed:  # noqa: ARG002  looks as it claims
        with self._alone() as sql:
            rows = sql.claim(
                topic=consumer.topic,
                group=consumer.group,
                consumer=consumer.id,
                lease_ms=consumer.lease_ms,
                max_attempts=consumer.max_attempts,
                limit=limit,
            )
            if not rows:
                ((wait_ms,),) = sql.look(topic=consumer.topic, group=consumer.group)
                return Claimed(wait_ms=LOCKED_MS if wait_ms == 0 else wait_ms)
        claims = [
            Claim(id_, version, attempts, data, by) for id_, version, attempts, by, dead, data in rows if not dead
        ]
        return Claimed(claims, [row[0] for row in rows if row[4]], 0)

    def _acknowledge(self, sql: Statements, consumer: Consumer, claims: Sequence[Claim]) -> int:
        return sum(count for _, count in self._fenced(sql.ack, consumer, claims))

    def bury(self, consumer: Consumer, claim: Claim, error: BaseException | str) -> bool:
        with self.schema.autocommit() as transaction:
            ((buried,),) = transaction.sql(PACKAGE).bury(
                topic=consumer.topic,
                group=consumer.group,
                message_id=claim.message_id,
                claim_version=claim.version,
                error=describe(error),
                traceback=trace(error),
            )
        return bool(buried)
