"""Topics on SQLite: a claim is one short write transaction; nothing is written where there is nothing to claim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ticklake.database import Transaction
from ticklake.database.schema import Statement, Statements
from ticklake.topics.envelope import Envelope
from ticklake.topics.store import PACKAGE, Claim, Claimed, Consumer, TopicStore, describe, trace


class SqliteTopicStore(TopicStore):
    """The topics of one run's file."""

    def publish(self, topic: str, envelopes: Sequence[Envelope], connection: Transaction) -> None:
        now = self.schema.now_ms()
        self.joined(connection).publish.many(
            {"topic": topic, "message_id": e.message_id, "timestamp": e.timestamp, "envelope": e.data, "now": now}
            for e in envelopes
        )
        connection.notify(topic)

    def claim(self, consumer: Consumer, limit: int) -> Claimed:
        fresh, wait_ms = self._look(consumer)
        if not fresh and wait_ms != 0:
            return Claimed(wait_ms=wait_ms)
        with self.schema.transaction(durable=False) as transaction:
            sql = transaction.sql(PACKAGE)
            values: dict[str, Any] = {"topic": consumer.topic, "group": consumer.group, "consumer": consumer.id}
            values |= {"lease_ms": consumer.lease_ms, "now": self.schema.now_ms()}
            again, dead = self._claim_again(sql, consumer, values, limit) if wait_ms == 0 else ([], [])
            new = self._claim_fresh(sql, values, limit - len(again))
        return Claimed((*again, *new), dead, 0)

    def bury(self, consumer: Consumer, claim: Claim, error: BaseException | str) -> bool:
        with self.schema.transaction() as transaction:
            return self._bury(transaction.sql(PACKAGE), consumer, claim, error)

    def _fenced(self, statement: Statement, consumer: Consumer, claims: Sequence[Claim], **values: object) -> set[str]:
        shared = {"topic": consumer.topic, "group": consumer.group, "consumer": consumer.id, **values}
        shared["now"] = self.schema.now_ms()
        rows = statement.many({**shared, "message_id": claim.message_id, "version": claim.version} for claim in claims)
        return {row[0] for row in rows}

    @staticmethod
    def _bury(sql: Statements, consumer: Consumer, claim: Claim, error: BaseException | str) -> bool:
        place = {"topic": consumer.topic, "group": consumer.group, "message_id": claim.message_id}
        if not sql.set_aside(**place, claim_version=claim.version):
            return False
        sql.add_dead_letter(**place, error=describe(error), traceback=trace(error))
        return True

    def _look(self, consumer: Consumer) -> tuple[bool, int | None]:
        """Is there something new, and in how many milliseconds is something free again (None: not by itself)?"""
        with self.schema.reading() as transaction:
            ((fresh, wait_ms),) = transaction.sql(PACKAGE).look(topic=consumer.topic, group=consumer.group)
        return bool(fresh), wait_ms

    def _claim_again(
        self, sql: Statements, consumer: Consumer, values: dict[str, Any], limit: int
    ) -> tuple[list[Claim], list[str]]:
        """What was delivered before and is free again; what was delivered too often becomes a dead letter."""
        sql.expire(**values)
        rows = sql.available(**values, limit=limit)
        found = [Claim(message_id, version, attempts, data, by) for message_id, version, attempts, by, _, data in rows]
        spent = [claim for claim in found if claim.attempts >= consumer.max_attempts]
        for claim in spent:
            self._bury(sql, consumer, claim, f"delivered {claim.attempts} times and never acknowledged")
        again = [claim for claim in found if claim.attempts < consumer.max_attempts]
        sql.reclaim.many({**values, "message_id": claim.message_id} for claim in again)
        taken = [claim._replace(version=claim.version + 1, attempts=claim.attempts + 1) for claim in again]
        return taken, [claim.message_id for claim in spent]

    @staticmethod
    def _claim_fresh(sql: Statements, values: dict[str, Any], limit: int) -> list[Claim]:
        rows = sql.fresh(**values, limit=limit) if limit else []
        if not rows:
            return []
        versions = sql.take.many({**values, "id": id_, "message_id": message_id} for id_, message_id, _ in rows)
        sql.advance(**values, frontier=rows[-1][0])
        return [Claim(row[1], version, 1, row[2]) for row, (version,) in zip(rows, versions, strict=True)]
