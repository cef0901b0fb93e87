"""Where a run's topics are kept. Both databases share the claims' rules; they differ in how they publish and claim."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from ticklake.database import Listener, Schema, Transaction
from ticklake.database.schema import Statement, Statements
from ticklake.text import traceback_text
from ticklake.topics.envelope import Envelope
from ticklake.topics.errors import OtherDatabase, OtherRun
from ticklake.topics.store.parts import in_parts

PACKAGE = "ticklake.topics"
_Result = TypeVar("_Result")


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

    claims: Sequence[Claim] = ()
    dead: Sequence[str] = ()
    wait_ms: int | None = None


class Acked(NamedTuple):
    """Which claims are acknowledged; `new`: how many of them were not before."""

    done: list[bool]
    new: int


class OpenTransaction(NamedTuple):
    """What keeps PostgreSQL from removing old versions of rows; `kind` is what it is, `pid` the process if it has one.

    Besides a session this may be a prepared transaction, a standby or a replication slot.
    """

    pid: int | None
    name: str
    seconds: float
    kind: str = "session"

    @property
    def who(self) -> str:
        name = self.name if self.kind == "session" else f"{self.kind} {self.name}"
        return name if self.pid is None else f"{name} (pid {self.pid})"

    @property
    def remedy(self) -> str:
        """What ends it."""
        literal = "'" + self.name.replace("'", "''") + "'"
        standby = "End the long query on the standby, or set hot_standby_feedback = off there"
        return {
            "prepared transaction": f"End it: ROLLBACK PREPARED {literal}",
            "standby": standby,
            "replication slot": f"{standby}; if nobody needs the slot: SELECT pg_drop_replication_slot({literal})",
        }.get(self.kind, f"End it: SELECT pg_terminate_backend({self.pid})")

    def __str__(self) -> str:
        does = "holds vacuum back" if self.kind in ("standby", "replication slot") else "has a transaction open"
        return f"{self.who} {does} for {self.seconds:,.0f} s, so vacuum removes no dead rows of claims"


class TopicStore(ABC):
    """One run's topics, whose tables are there. `connection` is the caller's transaction to join; default: its own."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    def publish(self, topic: str, envelopes: Sequence[Envelope], connection: Transaction) -> int:
        """Store them, in this order; what is there already is left as it is. Returns the number of new ones."""
        return sum(self._publish(topic, part, connection) for part in in_parts(envelopes))

    @abstractmethod
    def _publish(self, topic: str, envelopes: Sequence[Envelope], connection: Transaction) -> int:
        """Store what is not too much for one statement. Returns the number of new messages."""

    def publish_all(self, parcels: Sequence[tuple[str, Sequence[Envelope]]]) -> None:
        """Store what several senders bring in one durable commit."""
        by_topic: dict[str, list[Envelope]] = {}
        for topic, envelopes in parcels:
            by_topic.setdefault(topic, []).extend(envelopes)
        statements = [(topic, part) for topic, envelopes in by_topic.items() for part in in_parts(envelopes)]
        one = len(statements) == 1
        with self.schema.autocommit() if one else self.schema.transaction() as transaction:
            for topic, part in statements:
                self._publish(topic, part, transaction)

    @abstractmethod
    def claim(self, consumer: Consumer, limit: int, *, more: bool = False) -> Claimed:
        """Claim up to `limit` messages, the oldest first. `more`: there were as many as asked for the last time."""

    @abstractmethod
    def bury(self, consumer: Consumer, claim: Claim, error: BaseException | str) -> bool:
        """Make a claimed message a dead letter; False where the claim was lost meanwhile."""

    @abstractmethod
    def _acknowledge(self, sql: Statements, consumer: Consumer, claims: Sequence[Claim]) -> int:
        """Acknowledge those claims that are still held. How many: to be told which would cost as much again."""

    def intervene(self, act: Callable[[Transaction], _Result]) -> _Result:
        """What an operator does, in a transaction. It may be done several times; the last time counts."""
        with self.schema.transaction() as transaction:
            return act(transaction)

    def limit_waiting(self, transaction: Transaction) -> None:  # noqa: B027
        """From here on, to wait long for a lock is an error. SQLite has one lock, which is taken at the beginning."""

    @abstractmethod
    def hold_groups(self, topic: str, transaction: Transaction) -> None:
        """Until the transaction ends, no group of the topic is made, claims anything or is set to another position."""

    def listen(self, topic: str) -> Listener:
        return self.schema.listen(topic)

    def oldest_transaction(self) -> OpenTransaction | None:
        """The transaction that holds vacuum back the furthest, on a database that has a vacuum."""
        return None

    def renumber(self) -> int | None:
        """Replaces transaction numbers of another server, after a restore. Returns the number of changed messages.

        None: all numbers are of this server, or the database has none.
        """
        return None

    def join(self, topic: str, group: str, *, at_end: bool) -> None:
        """Make a group known, durably: what comes after its start is owed to it. A known one keeps its position."""
        with self.schema.autocommit() as transaction:
            transaction.sql(PACKAGE).join_group(topic=topic, group=group, at_end=at_end)

    def ack(self, consumer: Consumer, claims: Sequence[Claim], connection: Transaction | None = None) -> Acked:
        with self._alone(connection) as sql:
            new = self._acknowledge(sql, consumer, claims)
            if new == len(claims):
                return Acked([True] * len(claims), new)
            done = self._fenced(sql.acknowledged, consumer, claims)
        return Acked(_among(claims, done), new)

    def extend(self, consumer: Consumer, claims: Sequence[Claim]) -> list[bool]:
        with self._alone() as sql:
            held = self._fenced(sql.extend, consumer, claims, lease_ms=consumer.lease_ms)
        return _among(claims, held)

    def release(
        self, consumer: Consumer, claims: Sequence[Claim], delay_ms: int, *, forgiven: bool = True
    ) -> list[bool]:
        """Give claims back. `forgiven`: this delivery does not count as an attempt."""
        with self.schema.transaction(durable=False) as transaction:
            release = transaction.sql(PACKAGE).release
            free = self._fenced(release, consumer, claims, delay_ms=max(0, delay_ms), forgiven=int(forgiven))
            transaction.notify(consumer.topic)
        return _among(claims, free)

    def give_back_unknown(self, consumer: Consumer, in_hand: Sequence[str]) -> None:
        """Release what this consumer has claimed without knowing: the answer got lost with the connection."""
        values = {"topic": consumer.topic, "group": consumer.group, "consumer": consumer.id}
        with self._alone() as sql:
            sql.release_unknown(**values, in_hand=json.dumps(in_hand))

    def processed(self, indexer_class: str, batch_id: str) -> bool:
        with self.schema.reading() as transaction:
            self.limit_waiting(transaction)
            ((found,),) = transaction.sql(PACKAGE).processed(indexer_class=indexer_class, batch_id=batch_id)
        return bool(found)

    def mark_processed(self, indexer_class: str, batch_ids: Sequence[str], connection: Transaction | None) -> None:
        with self._alone(connection) as sql:
            sql.mark_processed(indexer_class=indexer_class, batch_ids=json.dumps(batch_ids))

    def joined(self, connection: Transaction) -> Statements:
        """Our statements in the caller's transaction, which must be one of this run."""
        if connection.run_id != self.schema.run_id:
            raise OtherRun(bound=self.schema.run_id, run_id=connection.run_id)
        if connection.database != self.schema.database:
            raise OtherDatabase(database=self.schema.database, other=connection.database)
        return connection.sql(PACKAGE)

    @staticmethod
    def _fenced(
        statement: Statement, consumer: Consumer, claims: Sequence[Claim], **values: object
    ) -> list[tuple[int, Any]]:
        """Run a statement on those claims that are still held, by versions; what it gives for each, mostly ids."""
        values |= {"topic": consumer.topic, "group": consumer.group, "consumer": consumer.id}
        return [
            (version, row[0])
            for version, message_ids in _by_version(claims).items()
            for row in statement(**values, version=version, message_ids=json.dumps(message_ids))
        ]

    @contextmanager
    def _alone(self, connection: Transaction | None = None) -> Iterator[Statements]:
        """Statements that need not be durable and, where no transaction is joined, commit each on its own."""
        if connection is not None:
            yield self.joined(connection)
            return
        with self.schema.autocommit(durable=False) as transaction:
            yield transaction.sql(PACKAGE)


def _by_version(claims: Sequence[Claim]) -> dict[int, list[str]]:
    """Nearly always one version: nearly always one statement for all."""
    found: dict[int, list[str]] = {}
    for claim in claims:
        found.setdefault(claim.version, []).append(claim.message_id)
    return found


def _among(claims: Sequence[Claim], found: Iterable[tuple[int, str]]) -> list[bool]:
    """An old claim of a message is not the one that is held, even beside it."""
    known = set(found)
    return [(claim.version, claim.message_id) in known for claim in claims]


def trace(error: BaseException | str) -> str:
    return "" if isinstance(error, str) else traceback_text(error)
