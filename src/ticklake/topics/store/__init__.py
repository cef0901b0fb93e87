"""Stores the topics of a run in SQLite or PostgreSQL, and implements the rules of claims."""

from __future__ import annotations

from ticklake.topics.store.baton import (
    BATON_GROUP,
    backlog,
    baton_id,
    baton_topic,
    check_not_reserved,
    is_baton,
    outbox_of,
)
from ticklake.topics.store.numbering import has_foreign_numbers
from ticklake.topics.store.parts import check_size, count_fitting, in_parts
from ticklake.topics.store.postgres import PostgresTopicStore
from ticklake.topics.store.sqlite import SqliteTopicStore
from ticklake.topics.store.store import (
    PACKAGE,
    Claim,
    Claimed,
    Consumer,
    OpenTransaction,
    TopicStore,
)

__all__ = [
    "BATON_GROUP",
    "PACKAGE",
    "Claim",
    "Claimed",
    "Consumer",
    "OpenTransaction",
    "PostgresTopicStore",
    "SqliteTopicStore",
    "TopicStore",
    "backlog",
    "baton_id",
    "baton_topic",
    "check_not_reserved",
    "check_size",
    "count_fitting",
    "has_foreign_numbers",
    "in_parts",
    "is_baton",
    "outbox_of",
]
