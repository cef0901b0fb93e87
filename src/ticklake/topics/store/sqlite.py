"""Topics on SQLite. A claim is one short write transaction. If there is nothing to claim, nothing is written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from ticklake.database import Transaction
from ticklake.database.errors import UniqueViolation
from ticklake.database.schema import Statements
from ticklake.text import error_text
from ticklake.topics.envelope import Envelope
from ticklake.topics.store.parts import AT_ONCE, count_fitting
from ticklake.topics.store.store import PACKAGE, Claim, Claimed, Consumer, TopicStore, trace

LOST_OFTEN = 2
"""From this many deliveries on, a message whose claim was lost comes alone. topic_claim() has the same two numbers."""

LAST_ALONE = 2
"""The number of last deliveries that a message gets alone."""


class _Look(NamedTuple):
    """What can be claimed: are there new messages, when is a delivered one available again (None: unknown), and was the
    clock set back since a lease or a delay began?"""

    fresh: bool
    wait_ms: int | None
    set_back: bool


class SqliteTopicStore(TopicStore):
    """The topics of one run's file."""

    def _publish(self, topic: str, envelopes: Sequence[Envelope], connection: Transaction) -> int:
        now = self.schema.now_ms()
        new = self.statements_in(connection).publish.count(
            {"topic": topic, "message_id": e.message_id, "timestamp": e.timestamp, "envelope": e.data, "now": now}
            for e in envelopes
        )
        connection.notify(topic)
        return new

    def lock_groups(self, topic: str, transaction: Transaction) -> None:
        """Does nothing: no other transaction writes until this one ends."""

    def claim(self, consumer: Consumer, limit: int, *, more: bool = False) -> Claimed:
        # If there is nothing to claim, do not write and do not wait for the write lock.
        known = None if more else self._look_without_lock(consumer)
        if known and not known.fresh and known.wait_ms != 0 and not known.set_back:
            return Claimed(wait_ms=known.wait_ms)
        with self.schema.transaction(durable=False) as transaction:
            return self._claim(transaction.sql(PACKAGE), consumer, limit, known)

    def _claim(self, sql: Statements, consumer: Consumer, limit: int, known: _Look | None) -> Claimed:
        values: dict[str, Any] = {"topic": consumer.topic, "group": consumer.group, "consumer": consumer.id}
        values |= {"lease_ms": consumer.lease_ms, "now": self.schema.now_ms()}
        look = known or _look(sql, consumer)
        if look.set_back:
            sql.restart(**values)
            look = _look(sql, consumer)
        again, dead, cut = self._claim_again(sql, consumer, values, limit) if look.wait_ms == 0 else ([], [], False)
        # Dead letters use up room: there may be more available messages, which are older than new ones.
        room, used = 0 if cut else limit - len(again) - len(dead), sum(len(claim.data) for claim in again)
        new = self._claim_fresh(sql, values, room, AT_ONCE - used, at_least_one=not again)
        return Claimed((*again, *new), dead, 0 if again or new or dead else look.wait_ms)

    def _look_without_lock(self, consumer: Consumer) -> _Look:
        with self.schema.reading() as view:
            return _look(view.sql(PACKAGE), consumer)

    def bury(self, consumer: Consumer, claim: Claim, error: BaseException | str) -> bool:
        with self.schema.transaction() as transaction:
            return self._bury(transaction.sql(PACKAGE), consumer, claim, error, holder=consumer.id)

    def _acknowledge(self, sql: Statements, consumer: Consumer, claims: Sequence[Claim]) -> int:
        new = sql.ack.count(self._held_values(consumer, claims))
        message_ids = json.dumps([claim.message_id for claim in claims])
        sql.drop_done_dead_letters(topic=consumer.topic, group=consumer.group, message_ids=message_ids)
        return new

    @staticmethod
    def _bury(
        sql: Statements, consumer: Consumer, claim: Claim, error: BaseException | str, *, holder: str | None
    ) -> bool:
        place = {"topic": consumer.topic, "group": consumer.group, "message_id": claim.message_id}
        if not sql.set_aside(**place, claim_version=claim.version, holder=holder):
            return False
        sql.add_dead_letter(**place, error=error_text(error), traceback=trace(error))
        return True

    def _claim_again(
        self, sql: Statements, consumer: Consumer, values: dict[str, Any], limit: int
    ) -> tuple[list[Claim], list[str], bool]:
        """Claims messages that were delivered before and are available again. Buries those without attempts left.

        Returns the claims, the ids of the dead letters, and whether no new messages may be claimed with them: some were
        left because they have too many bytes or come alone, or the consumer gets redeliveries apart.
        """
        sql.expire(**values)
        rows = sql.available(**values, limit=limit)
        sizes = {message_id: size for message_id, *_, size in rows}
        found = [Claim(message_id, version, attempts, b"", holder) for message_id, version, attempts, holder, _ in rows]
        free = [claim for claim in found if claim.attempts < consumer.max_attempts]
        together = _claimed_together(free, consumer)
        again = free[: min(together, count_fitting(sizes[claim.message_id] for claim in free))]
        # In order, as on PostgreSQL: what comes after a message that is left waits with it.
        end = found.index(free[len(again)]) if len(again) < len(free) else len(found)
        spent = [claim for claim in found[:end] if claim.attempts >= consumer.max_attempts]
        for claim in spent:
            reason = f"delivered {claim.attempts} times and never acknowledged"
            self._bury(sql, consumer, claim, reason, holder=claim.previous_holder)
        is_apart = consumer.alone and any(claim.attempts for claim in again)
        sql.reclaim.many({**values, "message_id": claim.message_id} for claim in again)
        ids = json.dumps([claim.message_id for claim in again])
        data: dict[str, bytes] = dict(sql.envelopes(topic=consumer.topic, message_ids=ids)) if again else {}
        claimed = [
            claim._replace(version=claim.version + 1, attempts=claim.attempts + 1, data=data[claim.message_id])
            for claim in again
        ]
        return claimed, [claim.message_id for claim in spent], is_apart or len(again) < len(free)

    @staticmethod
    def _claim_fresh(
        sql: Statements, values: dict[str, Any], limit: int, most_bytes: int, *, at_least_one: bool
    ) -> list[Claim]:
        """Claims messages that were never delivered, up to `limit` and `most_bytes`."""
        rows = sql.fresh(**values, limit=limit) if limit else []
        if rows and (at_least_one or rows[0][2] <= most_bytes):
            rows = rows[: count_fitting((size for _, _, size in rows), most_bytes)]
        else:
            return []
        values |= {"first": rows[0][0], "last": rows[-1][0]}
        versions: dict[str, int] = {}
        try:
            sql.claim_fresh(**values)
        except UniqueViolation:  # the group was set back
            versions = dict(sql.claim_after_reset(**values))
        sql.advance(**values)
        bodies = sql.bodies(topic=values["topic"], first=values["first"], last=values["last"])
        return [
            Claim(message_id, versions.get(message_id, 1), 1, data)
            for (_, message_id, _), (data,) in zip(rows, bodies, strict=True)
        ]


def _claimed_together(found: Sequence[Claim], consumer: Consumer) -> int:
    """Returns how many claims come together: the first if it must be alone, or all before such a one."""
    return sum(1 for _ in takewhile(lambda claim: not _must_be_alone(claim, consumer), found)) or 1


def _must_be_alone(claim: Claim, consumer: Consumer) -> bool:
    """Returns whether a message may be what ends its process, or has only two deliveries left."""
    was_lost = claim.attempts >= LOST_OFTEN and claim.previous_holder is not None
    has_few_left = claim.attempts >= consumer.max_attempts - LAST_ALONE
    return consumer.alone and claim.attempts > 0 and (was_lost or has_few_left)


def _look(sql: Statements, consumer: Consumer) -> _Look:
    ((fresh, wait_ms, set_back),) = sql.look(topic=consumer.topic, group=consumer.group)
    return _Look(bool(fresh), wait_ms, bool(set_back))
