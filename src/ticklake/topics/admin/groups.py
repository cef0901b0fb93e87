"""Consumer groups: their lag, and resets to another position."""

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
    """A group. `lag` is the number of messages that are not acknowledged, counted up to a million.

    `oldest_ms` is the age of the oldest of them. For the relays of an outbox, both are about its unsent messages.
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
        """Returns the groups, from the database: no consumer needs to be alive."""
        with self._store.schema.reading() as transaction:
            rows = transaction.sql(PACKAGE).groups(topic=topic, limit=COUNT_LIMIT)
            found = [
                GroupStatus(name, group, fresh + open_, claimed, dead, oldest)
                for name, group, _, fresh, open_, claimed, dead, oldest in rows
            ]
            return [_of_outbox(status, transaction) for status in found]

    def lag(self, topic: str, group: str) -> int:
        """Returns the number of messages that a group has not acknowledged, including those that consumers hold."""
        return sum(status.lag for status in self.list(topic) if status.group == group)

    def reset(self, topic: str, group: str, to: str | datetime, *, dry_run: bool = False) -> int:
        """Sets the next delivery to `to`: "earliest", "end", a message id, or a time (UTC if it has no zone).

        Returns the number of messages after that position. Open claims are lost: their acks will be refused. Dead
        letters stay. Waits up to a minute for open transactions with acks. The relays of an outbox cannot be set to a
        position after their only message.
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
                sql.set_aside_open_claims(topic=topic, group=group)
                transaction.notify(topic)
            return int(ahead)

        return self._store.intervene(reset)


def parse_position(text: str) -> str | datetime:
    """Parses user input for `Groups.reset`. Times may end with ` UTC`, as TickLake prints them, or have no zone."""
    try:
        time = datetime.fromisoformat(f"{text.removesuffix(' UTC')}Z" if text.endswith(" UTC") else text)
    except ValueError:
        return text
    return _in_utc(time)


def reset_text(topic: str, group: str, to: str | datetime, ahead: int, *, dry_run: bool) -> str:
    """Returns what a reset has done as text. A time is shown in UTC."""
    since = f", from {_in_utc(to).replace(tzinfo=None).isoformat(' ')} UTC on" if isinstance(to, datetime) else ""
    return f"{group} {'would have' if dry_run else 'has'} {ahead:,} messages of {topic} ahead{since}."


def _in_utc(time: datetime) -> datetime:
    try:
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except OverflowError as error:
        raise TimeOutOfRange(time=time.isoformat()) from error


def _of_outbox(status: GroupStatus, transaction: Transaction) -> GroupStatus:
    """Replaces the lag of a baton by that of its outbox. A relay keeps its baton claimed, so it is never behind."""
    outbox = outbox_of(status.topic, status.group, transaction)
    if outbox is None:
        return status
    unsent, oldest_ms = backlog(outbox, COUNT_LIMIT, transaction)
    return status._replace(lag=unsent, claimed=0, oldest_ms=oldest_ms)


def _position(sql: Statements, topic: str, to: str | datetime) -> tuple[int, str | None]:
    """Returns the id before the next delivery and, on PostgreSQL, the snapshot in which it was found."""
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
