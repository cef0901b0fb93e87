"""The claims of consumers: who holds which message, since when, and which claims are stuck."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ticklake.checks.numbers import check_count
from ticklake.database import Transaction
from ticklake.topics.errors import NoClaimsNamed
from ticklake.topics.store import PACKAGE, TopicStore

STUCK_SECONDS = 300
CHUNK = 1000
_ALL = 1 << 60


class HeldClaim(NamedTuple):
    """A claimed message. `expires_in_ms` is negative after the lease has ended, and None if it never ends.

    If a poll has found the expired claim, but had no room for it, the time since the lease began counts instead.
    """

    topic: str
    group: str
    message_id: str
    consumer: str
    version: int
    attempts: int
    age_ms: int
    expires_in_ms: int | None


class Claims:
    """The claims of a run."""

    def __init__(self, store: TopicStore) -> None:
        self._store = store

    def list(
        self,
        *,
        topic: str | None = None,
        group: str | None = None,
        message_id: str | None = None,
        stuck: bool = False,
        limit: int | None = 1000,
    ) -> list[HeldClaim]:
        """Returns the claims, oldest first.

        `stuck`: only expired claims and claims without an expiry that are older than five minutes.
        """
        which = {"topic": topic, "group": group, "message_id": message_id, "stuck": int(stuck)}
        count = _ALL if limit is None else check_count("limit", limit)
        with self._store.schema.reading() as transaction:
            rows = transaction.sql(PACKAGE).claims(**which, older_ms=STUCK_SECONDS * 1000, limit=count)
        return [HeldClaim(*row) for row in rows]

    def named(
        self, *, topic: str | None = None, group: str | None = None, message_id: str | None = None, stuck: bool = False
    ) -> Sequence[HeldClaim]:
        """Returns the claims to release. Raises `NoClaimsNamed` without a condition, which would mean all claims."""
        if not (topic or group or message_id or stuck):
            raise NoClaimsNamed()
        return self.list(topic=topic, group=group, message_id=message_id, stuck=stuck, limit=None)

    def release(self, claims: Sequence[HeldClaim], *, forgiven: bool = False) -> int:
        """Releases claims of any holder; later acks of the holder are refused. Returns how many were still held.

        `forgiven`: the deliveries do not count as attempts.
        """
        return sum(self._release(claims[start : start + CHUNK], forgiven) for start in range(0, len(claims), CHUNK))

    def _release(self, claims: Sequence[HeldClaim], forgiven: bool) -> int:
        def release(transaction: Transaction) -> int:
            sql = transaction.sql(PACKAGE)
            released = [
                row
                for claim in claims
                for row in sql.force_release(
                    topic=claim.topic,
                    group=claim.group,
                    message_id=claim.message_id,
                    version=claim.version,
                    forgiven=int(forgiven),
                )
            ]
            for topic in sorted({claim.topic for claim in claims}):
                transaction.notify(topic)
            return len(released)

        return self._store.intervene(release)
