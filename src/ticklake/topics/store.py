"""Where a run's topics are kept. Both databases share the claims' rules; they differ in how they publish and claim."""

from __future__ import annotations

import json
import traceback
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from ticklake.database import Listener, Schema, Transaction
from ticklake.database.schema import Statements
from ticklake.topics.envelope import Envelope

PACKAGE = "ticklake.topics"


class Consumer(NamedTuple):
    """Who claims: one reader of a group. Its claims expire after `lease_ms`; 0 is never."""

    topic: str
    group: str
    id: str
    lease_ms: int
    max_attempts: int


class Claim(NamedTuple):
    """A message in the hands of a consumer; `taken_from` says who let an earlier claim expire."""

    message_id: str
    version: int
    attempts: int
    data: bytes
    taken_from: str | None = None


class Claimed(NamedTuple):
    """What a look at the topic gave: claims, or how long until one may become free (None: only a hint can tell)."""

    claims: Sequence[Claim]
    dead: Sequence[str] = ()
    wait_ms: int | None = None


class TopicStore(ABC):
    """One run's topics. `connection` is the caller's transaction to join; None makes one of its own."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        schema.prepare(PACKAGE)

    @abstractmethod
    def publish(self, topic: str, envelopes: Sequence[Envelope], connection: Transaction | None = None) -> None: ...

    @abstractmethod
    def claim(self, consumer: Consumer, limit: int) -> Claimed: ...

    def listen(self, topic: str) -> Listener:
        return self.schema.listen(topic)

    def join(self, topic: str, group: str, *, at_end: bool) -> None:
        """Make a group known; one that is known keeps its position."""
        with self._sql() as (_, sql):
            sql.join_group(topic=topic, group=group, at_end=at_end, now=self.schema.now_ms())

    def ack(self, consumer: Consumer, claims: Sequence[Claim], connection: Transaction | None = None) -> list[bool]:
        with self._sql(connection) as (_, sql):
            done = {row[0] for row in sql.ack(**self._fence(consumer, claims), now=self.schema.now_ms())}
            if len(done) < len(claims):
                done |= {row[0] for row in sql.acknowledged(**self._fence(consumer, claims))}
        return [claim.message_id in done for claim in claims]

    def extend(self, consumer: Consumer, claims: Sequence[Claim]) -> list[bool]:
        with self._sql() as (_, sql):
            rows = sql.extend(**self._fence(consumer, claims), lease_until=self._lease_until(consumer))
        held = {row[0] for row in rows}
        return [claim.message_id in held for claim in claims]

    def release(
        self, consumer: Consumer, claims: Sequence[Claim], delay_ms: int, *, forgiven: bool = True
    ) -> list[bool]:
        """Give claims back. `forgiven`: this delivery does not count as an attempt."""
        not_before = self.schema.now_ms() + delay_ms if delay_ms > 0 else 0
        with self._sql() as (transaction, sql):
            rows = sql.release(**self._fence(consumer, claims), not_before=not_before, forgiven=int(forgiven))
            transaction.notify(consumer.topic)
        free = {row[0] for row in rows}
        return [claim.message_id in free for claim in claims]

    def bury(self, consumer: Consumer, claim: Claim, error: BaseException | str) -> bool:
        """Make a claimed message a dead letter; False where the claim was lost meanwhile."""
        with self._sql(durable=True) as (_, sql):
            return self._bury(sql, consumer, claim, error)

    def _bury(self, sql: Statements, consumer: Consumer, claim: Claim, error: BaseException | str) -> bool:
        place = {"topic": consumer.topic, "group": consumer.group, "message_id": claim.message_id}
        now = self.schema.now_ms()
        if not sql.set_aside(**place, claim_version=claim.version, now=now):
            return False
        sql.add_dead_letter(**place, error=describe(error), traceback=trace(error), now=now)
        return True

    def processed(self, indexer_class: str, batch_id: str) -> bool:
        with self.schema.reading() as transaction:
            ((found,),) = transaction.sql(PACKAGE).processed(indexer_class=indexer_class, batch_id=batch_id)
        return bool(found)

    def mark_processed(self, indexer_class: str, batch_ids: Sequence[str], connection: Transaction | None) -> None:
        now = self.schema.now_ms()
        with self._sql(connection) as (_, sql):
            sql.mark_processed.many(
                {"indexer_class": indexer_class, "batch_id": batch_id, "now": now} for batch_id in batch_ids
            )

    @contextmanager
    def _sql(
        self, connection: Transaction | None = None, *, durable: bool = False
    ) -> Iterator[tuple[Transaction, Statements]]:
        if connection is not None:
            yield connection, connection.sql(PACKAGE)
            return
        with self.schema.transaction(durable=durable) as transaction:
            yield transaction, transaction.sql(PACKAGE)

    def _lease_until(self, consumer: Consumer) -> int | None:
        return self.schema.now_ms() + consumer.lease_ms if consumer.lease_ms else None

    @staticmethod
    def _fence(consumer: Consumer, claims: Sequence[Claim]) -> dict[str, str]:
        """Every change names the claim's version: what was taken over in between is not touched."""
        versions = json.dumps([(claim.message_id, claim.version) for claim in claims])
        return {"topic": consumer.topic, "group": consumer.group, "consumer": consumer.id, "claims": versions}


def describe(error: BaseException | str) -> str:
    return error if isinstance(error, str) else f"{type(error).__name__}: {error}"


def trace(error: BaseException | str) -> str:
    return "" if isinstance(error, str) else "".join(traceback.format_exception(error))
