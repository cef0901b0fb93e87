"""Reads topics without claiming messages."""

from __future__ import annotations

from typing import NamedTuple

from ticklake.checks.numbers import check_count
from ticklake.topics.admin.groups import COUNT_LIMIT
from ticklake.topics.envelope import Opened, unwrap
from ticklake.topics.errors import UndecodableMessage, UnknownMessage
from ticklake.topics.store import PACKAGE, TopicStore

PAGE = 1000
MAX_COUNT = 2**63 - 1


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
    store: TopicStore, topic: str, *, after: int = 0, limit: int | None = None, group: str | None = None
) -> list[StoredMessage]:
    """Returns the next messages after an id, in order; by default all. They are read page by page."""
    check_count("after", after)
    left = MAX_COUNT if limit is None else limit
    check_count("limit", left)
    found: list[StoredMessage] = []
    while left:
        page = min(left, PAGE)
        with store.schema.reading() as transaction:
            rows = transaction.sql(PACKAGE).browse(topic=topic, after=after, limit=page, group=group)
        found += [StoredMessage(*row) for row in rows]
        if len(rows) < page:
            break
        after, left = found[-1].id, left - page
    return found


def position_of(store: TopicStore, topic: str, message_id: str) -> int:
    """Returns the id of a message, for `stored_messages`; of `earliest`, the one before the first message."""
    if message_id == "earliest":
        return 0
    with store.schema.reading() as transaction:
        rows = transaction.sql(PACKAGE).position_of_message(topic=topic, message_id=message_id)
    if not rows:
        raise UnknownMessage(topic=topic, message_id=message_id)
    return int(rows[0][0]) + 1


def count_after(store: TopicStore, topic: str, position: int) -> int:
    """Returns the number of messages after an id."""
    with store.schema.reading() as transaction:
        return int(transaction.sql(PACKAGE).count_after(topic=topic, frontier=position)[0][0])


def position_before_last(store: TopicStore, topic: str, count: int) -> int:
    """Returns the id before the last `count` messages. If `count` is 0, the end."""
    check_count("count", count)
    with store.schema.reading() as transaction:
        return int(transaction.sql(PACKAGE).newest(topic=topic, limit=count)[0][0])
