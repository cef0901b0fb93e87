"""Durable topics on a database: publish and subscribe, consumer groups, leases, dead letters."""

from __future__ import annotations

from ticklake.database.retry import retry_while_unavailable
from ticklake.topics.admin import DeadLetter, DeadLetterFilter, GroupStatus, HeldClaim, StoredMessage, TopicStatus
from ticklake.topics.reader import Message, TopicReader, new_consumer_id
from ticklake.topics.runs import Database, ProcessedBatches, Run, runs_in
from ticklake.topics.writer import TopicWriter

__all__ = [
    "Database",
    "DeadLetter",
    "DeadLetterFilter",
    "GroupStatus",
    "HeldClaim",
    "Message",
    "ProcessedBatches",
    "Run",
    "StoredMessage",
    "TopicReader",
    "TopicStatus",
    "TopicWriter",
    "new_consumer_id",
    "retry_while_unavailable",
    "runs_in",
]
