"""The baton of an outbox: the only message of the topic `outbox/TOPIC`. The relay that has claimed it publishes."""

from __future__ import annotations

from uuid import NAMESPACE_URL, uuid5

from ticklake.database import Transaction
from ticklake.topics.errors import ReservedTopic
from ticklake.topics.store.store import PACKAGE

OUTBOXES = "ticklake.consumer"
"""The package with the table of the outboxes and its statements."""

BATON_GROUP = "relay"
_PREFIX = "outbox/"


def check_not_reserved(topic: str) -> str:
    """Returns the topic. Raises `ReservedTopic` if only relays may write to it."""
    if topic.startswith(_PREFIX):
        raise ReservedTopic(topic=topic)
    return topic


def baton_topic(topic: str) -> str:
    """Returns the topic with the baton of a topic's outbox."""
    return _PREFIX + topic


def baton_id(baton_topic: str) -> str:
    """Returns the message id of a baton. It never changes, so there is only one baton."""
    return str(uuid5(NAMESPACE_URL, baton_topic))


def is_baton(topic: str, message_id: str) -> bool:
    """Returns whether a message is a baton. Batons are not counted as messages."""
    return topic.startswith(_PREFIX) and message_id == baton_id(topic)


def outbox_of(topic: str, group: str, transaction: Transaction) -> str | None:
    """Returns the topic of the outbox whose baton is in `topic`; None if there is no baton."""
    if group != BATON_GROUP or not topic.startswith(_PREFIX):
        return None
    found = transaction.sql(PACKAGE).baton(topic=topic, message_id=baton_id(topic))
    return topic.removeprefix(_PREFIX) if found else None


def backlog(outbox: str, limit: int, transaction: Transaction) -> tuple[int, int | None]:
    """Returns the number of unsent messages of an outbox, up to `limit`, and the age of the oldest in milliseconds."""
    ((unsent, oldest_ms),) = transaction.sql(OUTBOXES).backlog(topic=outbox, limit=limit)
    return int(unsent), oldest_ms
