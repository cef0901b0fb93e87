"""Inspects topics and changes their state, for operators and commands."""

from __future__ import annotations

from ticklake.topics.admin.browse import (
    StoredMessage,
    TopicStatus,
    count_after,
    list_topics,
    position_before_last,
    position_of,
    stored_messages,
    topic_names,
)
from ticklake.topics.admin.claims import Claims, HeldClaim
from ticklake.topics.admin.dead_letters import DeadLetter, DeadLetterFilter, DeadLetters
from ticklake.topics.admin.groups import Groups, GroupStatus, parse_position, reset_text
from ticklake.topics.admin.retention import Retention, remove_outdated

__all__ = [
    "Claims",
    "DeadLetter",
    "DeadLetterFilter",
    "DeadLetters",
    "GroupStatus",
    "Groups",
    "HeldClaim",
    "Retention",
    "StoredMessage",
    "TopicStatus",
    "count_after",
    "list_topics",
    "parse_position",
    "position_before_last",
    "position_of",
    "remove_outdated",
    "reset_text",
    "stored_messages",
    "topic_names",
]
