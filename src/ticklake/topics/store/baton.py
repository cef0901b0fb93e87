"""The baton of an outbox, the one message of the topic `outbox/TOPIC`. Whoever has claimed it relays."""

from __future__ import annotations

from uuid import NAMESPACE_URL, uuid5

from ticklake.database import Transaction
from ticklake.topics.store.store import PACKAGE

OUTBOXES = "ticklake.consumer"
"""The package that has the outboxes' table and its statements."""

BATON_GROUP = "relay"
_PREFIX = "outbox/"


def baton_topic(topic: str) -> str:
    """Where the baton of a topic's outbox is."""
    return _PREFIX + topic


def baton_id(baton_topic: str) -> str:
    """Always the same, so that it is there once, whoever offers it first."""
    return str(uuid5(NAMESPACE_URL, baton_topic))


def is_baton(topic: str, message_id: str) -> bool:
    """Whether a message decides who relays, and tells nobody anything: it is not counted."""
    return topic.startswith(_PREFIX) and message_id == baton_id(topic)


def outbox_of(topic: str, group: str, transaction: Transaction) -> str | None:
    """The topic whose outbox has its baton here; None if this is any other topic, whatever its name."""
    if group != BATON_GROUP or not topic.startswith(_PREFIX):
        return None
    here = transaction.sql(PACKAGE).batons(topic=topic)
    return topic.removeprefix(_PREFIX) if here == [(baton_id(topic),)] else None


def backlog(outbox: str, limit: int, transaction: Transaction) -> tuple[int, int | None]:
    """How many messages of an outbox are not sent, up to a limit, and the age of the oldest in milliseconds."""
    ((unsent, oldest_ms),) = transaction.sql(OUTBOXES).backlog(topic=outbox, limit=limit)
    return int(unsent), oldest_ms
