"""Durable topics on a database: publish and subscribe, consumer groups, leases, dead letters."""

from __future__ import annotations

from ticklake.topics.browse import StoredMessage, TopicStatus
from ticklake.topics.claims import HeldClaim
from ticklake.topics.deadletters import DeadLetter, DeadLetterFilter
from ticklake.topics.groups import GroupStatus
from ticklake.topics.reader import Message, TopicReader
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
    "runs_in",
]
