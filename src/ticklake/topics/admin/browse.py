"""Reads topics without claiming messages."""

from __future__ import annotations

from typing import NamedTuple

from ticklake.checks.numbers import check_count
from ticklake.topics.admin.groups import COUNT_LIMIT
from ticklake.topics.envelope import Opened, unwrap
from ticklake.topics.errors import UndecodableMessage
from ticklake.topics.store import PACKAGE, TopicStore


class TopicStatus(NamedTuple):
    """A topic and its size. `messages` is counted up to a million."""

    topic: str
    messages: int
    first_ms: int | None
    last_ms: int | None
    groups: int


class StoredMessage(NamedTuple):
    """A message in a topic. `state` is its state for the group that was asked about.

    `published_at_ms` is the sender's time, `stored_at_ms` the database's. `Groups.reset` uses `stored_at_ms`.
    """

    id: int
    message_id: str
    published_at_ms: int
    envelope: bytes
    state: str
    stored_at_ms: int

    def opened(self) -> Opened | None:
        """Returns the decoded message; None if it cannot be decoded."""
        try:
            return unwrap(self.envelope)
        except UndecodableMessage:
            return None


def list_topics(store: TopicStore) -> list[TopicStatus]:
    """Returns all topics and their sizes."""
    with store.schema.reading() as transaction:
        sql = transaction.sql(PACKAGE)
        names = [row[0] for row in sql.topics()]
        return [TopicStatus(name, *sql.topic_status(topic=name, limit=COUNT_LIMIT)[0]) for name in names]


def topic_names(store: TopicStore) -> list[str]:
    """Returns the topics that have messages or groups. Counts nothing, so it is cheap."""
    with store.schema.reading() as transaction:
        return [row[0] for row in transaction.sql(PACKAGE).topics()]


def stored_messages(
    store: TopicStore, topic: str, *, after: int = 0, limit: int = 100, group: str | None = None
) -> list[StoredMessage]:
    """Returns the next messages after an id, in order."""
    check_count("after", after)
    check_count("limit", limit)
    with store.schema.reading() as transaction:
        rows = transaction.sql(PACKAGE).browse(topic=topic, after=after, limit=limit, group=group)
    return [StoredMessage(*row) for row in rows]


def position_before_last(store: TopicStore, topic: str, count: int) -> int:
    """Returns the id before the last `count` messages. If `count` is 0, the end."""
    check_count("count", count)
    with store.schema.reading() as transaction:
        return int(transaction.sql(PACKAGE).newest(topic=topic, limit=count)[0][0])
