"""A consumer group: how far it is, how far behind, and setting it to another position."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from ticklake.database import Transaction
from ticklake.database.schema import Statements
from ticklake.topics.errors import BatonPassedOver, TimeOutOfRange, UnknownGroup, UnknownMessage
from ticklake.topics.store import PACKAGE, TopicStore, backlog, outbox_of

COUNT_LIMIT = 1_000_000
_EPOCH, _MILLISECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)


class GroupStatus(NamedTuple):
    """`lag` counts what is not acknowledged, up to a million; `oldest_ms` is the age of the oldest of it.

    For the relays of an outbox, both are about the messages in the outbox that are not sent.
    """

    topic: str
    group: str
    lag: int
    claimed: int
    dead_letters: int
    oldest_ms: int | None


class Groups:
    """The consumer groups of a run."""

    def __init__(self, store: TopicStore) -> None:
        self._store = store

    def list(self, topic: str | None = None) -> list[GroupStatus]:
        """From the store, so it is there when no consumer is alive."""
        with self._store.schema.reading() as transaction:
            rows = transaction.sql(PACKAGE).groups(topic=topic, limit=COUNT_LIMIT)
            found = [
                GroupStatus(name, group, fresh + open_, claimed, dead, oldest)
                for name, group, _, fresh, open_, claimed, dead, oldest in rows
            ]
            return [_of_outbox(status, transaction) for status in found]

    def reset(self, topic: str, group: str, to: str | datetime, *, dry_run: bool = False) -> int:
        """Deliver from `to` on: "earliest", "end", a message's id, or a time. How many messages are then ahead.

        A time without a zone is in UTC.

        Claims that are held now are lost: their acks will be refused. Dead letters stay. Acks in a transaction that is
        open are waited for, up to a minute. The relays of an outbox cannot be set past their one message.
        """

        def reset(transaction: Transaction) -> int:
            sql = transaction.sql(PACKAGE)
            if not sql.lock_position(topic=topic, group=group):
                raise UnknownGroup(topic=topic, group=group)
            position, seen = _position(sql, topic, to)
            ((ahead,),) = sql.count_after(topic=topic, frontier=position)
            outbox = outbox_of(topic, group, transaction)
            if outbox is not None and not ahead:
                raise BatonPassedOver(topic=topic, outbox=outbox)
            if not dry_run:
                sql.set_position(topic=topic, group=group, frontier=position, seen=seen)
                sql.pass_over(topic=topic, group=group)
                transaction.notify(topic)
            return int(ahead)

        return self._store.intervene(reset)


def parse_position(text: str) -> str | datetime:
    """What someone wrote for `Groups.reset`. Of a time, the product's own form is understood: `… UTC`, or no zone."""
    try:
        time = datetime.fromisoformat(f"{text.removesuffix(' UTC')}Z" if text.endswith(" UTC") else text)
    except ValueError:
        return text
    return _in_utc(time)


def reset_text(topic: str, group: str, to: str | datetime, ahead: int, *, dry_run: bool) -> str:
    """What a reset has done, for people. A time is told as it was understood."""
    since = f", from {_in_utc(to).replace(tzinfo=None).isoformat(' ')} UTC on" if isinstance(to, datetime) else ""
    return f"{group} {'would have' if dry_run else 'has'} {ahead:,} messages of {topic} ahead{since}."


def _in_utc(time: datetime) -> datetime:
    try:
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except OverflowError as error:
        raise TimeOutOfRange(time=time.isoformat()) from error


def _of_outbox(status: GroupStatus, transaction: Transaction) -> GroupStatus:
    """A baton is claimed for as long as there is a relay: it is not behind, what is in its outbox may be."""
    outbox = outbox_of(status.topic, status.group, transaction)
    if outbox is None:
        return status
    unsent, oldest_ms = backlog(outbox, COUNT_LIMIT, transaction)
    return status._replace(lag=unsent, claimed=0, oldest_ms=oldest_ms)


def _position(sql: Statements, topic: str, to: str | datetime) -> tuple[int, str | None]:
    """The id after which delivery goes on, and (on PostgreSQL) the snapshot in which it was found."""
    if to == "earliest":
        return 0, None
    if to == "end":
        rows = sql.position_of_end(topic=topic)
    elif isinstance(to, datetime):
        rows = sql.position_of_time(topic=topic, to_ms=(_in_utc(to) - _EPOCH) // _MILLISECOND)
    else:
        rows = sql.position_of_message(topic=topic, message_id=to)
    if not rows:
        raise UnknownMessage(topic=topic, message_id=to)
    ((position, seen),) = rows
    return position, seen
