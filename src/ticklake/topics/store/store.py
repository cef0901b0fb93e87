"""The store of a run's topics. Both databases share the rules of claims. They publish and claim differently."""

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
    """A reader of a group. Its claims expire after `lease_ms`; never if that is 0.

    `alone`: claims a message alone if it may be what ends its process (see `TopicStore.claim`).
    """

    topic: str
    group: str
    id: str
    lease_ms: int
    max_attempts: int
    alone: bool = False


class Claim(NamedTuple):
    """A message that a consumer has claimed. `previous_holder` is the consumer whose claim has expired, if any."""

    message_id: str
    version: int
    attempts: int
    data: bytes
    previous_holder: str | None = None


class Claimed(NamedTuple):
    """The result of a claim: claims and dead letters, or the time until the next attempt (None: wait for a hint)."""

    claims: Sequence[Claim] = ()
    dead: Sequence[str] = ()
    wait_ms: int | None = None


class Acked(NamedTuple):
    """Whether each claim is acknowledged, and how many were not acknowledged before (`new`)."""

    done: list[bool]
    new: int


class OpenTransaction(NamedTuple):
    """What prevents PostgreSQL from removing old versions of rows. `pid` is its process, if it has one.

    `kind` is "session", "prepared transaction", "standby" or "replication slot".
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
        """What an operator can do to end it."""
        literal = "'" + self.name.replace("'", "''") + "'"
        standby = "End the long query on the standby, or set hot_standby_feedback = off there"
        return {
            "prepared transaction": f"End it: ROLLBACK PREPARED {literal}",
            "standby": standby,
            "replication slot": f"{standby}; if the slot is not needed: SELECT pg_drop_replication_slot({literal})",
        }.get(self.kind, f"End it: SELECT pg_terminate_backend({self.pid})")

    def __str__(self) -> str:
        does = "holds vacuum back" if self.kind in ("standby", "replication slot") else "has a transaction open"
        return f"{self.who} {does} for {self.seconds:,.0f} s, so vacuum removes no dead rows of claims"


class TopicStore(ABC):
    """The topics of a run. `connection` is a transaction of the caller; by default, a new one is used."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    def publish(self, topic: str, envelopes: Sequence[Envelope], connection: Transaction) -> int:
        """Stores messages in this order. Skips existing ones. Returns the number of new messages."""
        return sum(self._publish(topic, part, connection) for part in in_parts(envelopes))

    @abstractmethod
    def _publish(self, topic: str, envelopes: Sequence[Envelope], connection: Transaction) -> int:
        """Like `publish`, for messages that fit in one statement."""

    def publish_all(self, parcels: Sequence[tuple[str, Sequence[Envelope]]]) -> None:
        """Stores the messages of several senders in one durable commit."""
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
        """Claims up to `limit` messages, oldest first. `more`: the last claim reached its limit.

        If the consumer is `alone`, a message is claimed alone if its claim was lost after its second delivery, or if it
        was delivered before and has only two deliveries left. Other redeliveries are claimed together, without new
        messages. So no message becomes a dead letter that was only claimed together with others, unless `max_attempts`
        is 1 or is lowered meanwhile.
        """

    @abstractmethod
    def bury(self, consumer: Consumer, claim: Claim, error: BaseException | str) -> bool:
        """Makes a claimed message a dead letter. Returns False if the claim was lost."""

    @abstractmethod
    def _acknowledge(self, sql: Statements, consumer: Consumer, claims: Sequence[Claim]) -> int:
        """Acknowledges the claims that are still held. Returns their number; returning their ids would be slow."""

    def intervene(self, act: Callable[[Transaction], _Result]) -> _Result:
        """Calls `act` of an operator in a transaction. It may be repeated; only the last call is committed."""
        with self.schema.transaction() as transaction:
            return act(transaction)

    def limit_waiting(self, transaction: Transaction) -> None:  # noqa: B027
        """Makes long waits for a lock an error. SQLite has one lock, which is acquired at the beginning."""

    @abstractmethod
    def lock_groups(self, topic: str, transaction: Transaction) -> None:
        """Until the transaction ends, no group of the topic is created, claims messages or is reset."""

    def listen(self, topic: str) -> Listener:
        return self.schema.listen(topic)

    def oldest_transaction(self) -> OpenTransaction | None:
        """Returns the transaction that blocks vacuum most; None if there is none or the database has no vacuum."""
        return None

    def renumber(self) -> int | None:
        """Replaces transaction numbers of another server after a restore. Returns the number of changed messages.

        Returns None if all numbers are of this server or the database has none.
        """
        return None

    def join(self, topic: str, group: str, *, at_end: bool) -> None:
        """Creates a group, durably. It gets all messages after its start. An existing group is not changed."""
        with self.schema.autocommit() as transaction:
            transaction.sql(PACKAGE).join_group(topic=topic, group=group, at_end=at_end)

    def ack(self, consumer: Consumer, claims: Sequence[Claim], connection: Transaction | None = None) -> Acked:
        """Acknowledges claims. A repeated ack succeeds too."""
        with self._together(claims, connection) as sql:
            new = self._acknowledge(sql, consumer, claims)
            if new == len(claims):
                return Acked([True] * len(claims), new)
            done = self._for_held(sql.acknowledged, consumer, claims)
        return Acked(_flags(claims, done), new)

    def extend(self, consumer: Consumer, claims: Sequence[Claim]) -> list[bool]:
        """Starts the leases of claims again. Returns whether each is still held."""
        with self._together(claims) as sql:
            held = self._for_held(sql.extend, consumer, claims, lease_ms=consumer.lease_ms)
        return _flags(claims, held)

    def release(
        self, consumer: Consumer, claims: Sequence[Claim], delay_ms: int, *, forgiven: bool = True
    ) -> list[bool]:
        """Releases claims. Returns whether each was held. `forgiven`: the delivery does not count as an attempt."""
        with self.schema.transaction(durable=False) as transaction:
            release = transaction.sql(PACKAGE).release
            released = self._for_held(release, consumer, claims, delay_ms=max(0, delay_ms), forgiven=int(forgiven))
            transaction.notify(consumer.topic)
        return _flags(claims, released)

    def release_unknown(self, consumer: Consumer, held: Sequence[str]) -> None:
        """Releases claims that are not in `held`. The answer to such a claim was lost with the connection."""
        values = {"topic": consumer.topic, "group": consumer.group, "consumer": consumer.id}
        with self._autocommit() as sql:
            sql.release_unknown(**values, held=json.dumps(held))

    def processed(self, indexer_class: str, batch_id: str) -> bool:
        with self.schema.reading() as transaction:
            self.limit_waiting(transaction)
            ((found,),) = transaction.sql(PACKAGE).processed(indexer_class=indexer_class, batch_id=batch_id)
        return bool(found)

    def mark_processed(self, indexer_class: str, batch_ids: Sequence[str], connection: Transaction | None) -> None:
        if connection is None:
            self.schema.check_nesting()
        with self._autocommit(connection) as sql:
            sql.mark_processed(indexer_class=indexer_class, batch_ids=json.dumps(batch_ids))

    def statements_in(self, connection: Transaction) -> Statements:
        """Returns our statements in the caller's transaction. It must be in this run."""
        if connection.run_id != self.schema.run_id:
            raise OtherRun(bound=self.schema.run_id, run_id=connection.run_id)
        if connection.database != self.schema.database:
            raise OtherDatabase(database=self.schema.database, other=connection.database)
        return connection.sql(PACKAGE)

    @classmethod
    def _for_held(
        cls, statement: Statement, consumer: Consumer, claims: Sequence[Claim], **values: object
    ) -> list[tuple[int, Any]]:
        """Executes a statement that changes only claims that are still held. Returns versions and first columns."""
        return [
            (held["version"], row[0])
            for held in cls._held_values(consumer, claims)
            for row in statement(**values, **held)
        ]

    @staticmethod
    def _held_values(consumer: Consumer, claims: Sequence[Claim]) -> Iterator[dict[str, Any]]:
        """Yields the values of a statement for the claims of each version."""
        place = {"topic": consumer.topic, "group": consumer.group, "consumer": consumer.id}
        for version, message_ids in _by_version(claims).items():
            yield {**place, "version": version, "message_ids": json.dumps(message_ids)}

    @contextmanager
    def _together(self, claims: Sequence[Claim], connection: Transaction | None = None) -> Iterator[Statements]:
        """Opens statements that change claims: all of them or none. One version needs one statement."""
        if connection is not None or len({claim.version for claim in claims}) == 1:
            with self._autocommit(connection) as sql:
                yield sql
            return
        with self.schema.transaction(durable=False) as transaction:
            yield transaction.sql(PACKAGE)

    @contextmanager
    def _autocommit(self, connection: Transaction | None = None) -> Iterator[Statements]:
        """Opens statements that need not be durable. Without `connection`, each commits separately."""
        if connection is not None:
            yield self.statements_in(connection)
            return
        with self.schema.autocommit(durable=False) as transaction:
            yield transaction.sql(PACKAGE)


def _by_version(claims: Sequence[Claim]) -> dict[int, list[str]]:
    """Groups claims by version. Nearly always there is only one, so one statement is enough.

    In order, so that two transactions do not wait for each other.
    """
    found: dict[int, list[str]] = {}
    for claim in claims:
        found.setdefault(claim.version, []).append(claim.message_id)
    return dict(sorted(found.items()))


def _flags(claims: Sequence[Claim], found: Iterable[tuple[int, str]]) -> list[bool]:
    """Returns whether each claim was found. Versions matter: an old claim of a held message is not held."""
    known = set(found)
    return [(claim.version, claim.message_id) in known for claim in claims]


def trace(error: BaseException | str) -> str:
    """Returns the traceback of an error; empty for a text."""
    return "" if isinstance(error, str) else traceback_text(error)
