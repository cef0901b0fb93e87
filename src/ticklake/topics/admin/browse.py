"""Looking into topics without claiming anything."""

from __future__ import annotations

from typing import NamedTuple

from ticklake.checks.numbers import check_count
from ticklake.topics.admin.groups import COUNT_LIMIT
from ticklake.topics.envelope import Opened, unwrap
from ticklake.topics.errors import UndecodableMessage
from ticklake.topics.store import PACKAGE, TopicStore


class TopicStatus(NamedTuple):
    """`messages` counts up to a million."""

    topic: str
    messages: int
    first_ms: int | None
    last_ms: int | None
    groups: int


class StoredMessage(NamedTuple):
    """A message in a topic and, where a group was asked about, what that group has done with it.

    `published_at_ms` is by the clock of its sender, `stored_at_ms` by that of the database: `Groups.reset` goes by it.
    """

    id: int
    message_id: str
    published_at_ms: int
    envelope: bytes
    state: str
    stored_at_ms: int

    def opened(self) -> Opened | None:
        """The message itself, where it can be decoded."""
        try:
            return unwrap(self.envelope)
        except UndecodableMessage:
            return None


def list_topics(store: TopicStore) -> list[TopicStatus]:
    with store.schema.reading() as transaction:
        sql = transaction.sql(PACKAGE)
        names = [row[0] for row in sql.topics()]
        return [TopicStatus(name, *sql.topic_status(topic=name, limit=COUNT_LIMIT)[0]) for name in names]


def topic_names(store: TopicStore) -> list[str]:
    """The topics that have messages or groups. Nothing is counted, so a live view can ask often."""
    with store.schema.reading() as transaction:
        return [row[0] for row in transaction.sql(PACKAGE).topics()]


def stored_messages(
    store: TopicStore, topic: str, *, after: int = 0, limit: int = 100, group: str | None = None
) -> list[StoredMessage]:
    """The next messages after an id, in order."""
    check_count("after", after)
    check_count("limit", limit)
    with store.schema.reading() as transaction:
        rows = transaction.sql(PACKAGE).browse(topic=topic, after=after, limit=limit, group=group)
    return [StoredMessage(*row) for row in rows]


def position_before_last(store: TopicStore, topic: str, count: int) -> int:
    """The id after which the last `count` messages come; of none, the end."""
    check_count("count", count)
    with store.schema.reading() as transaction:
        return int(transaction.sql(PACKAGE).newest(topic=topic, limit=count)[0][0])
