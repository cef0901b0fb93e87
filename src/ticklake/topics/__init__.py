"""Durable topics on a database: publish and subscribe, consumer groups, leases, dead letters."""

from __future__ import annotations

from ticklake.topics.reader import Message, TopicReader
from ticklake.topics.runs import Database, ProcessedBatches, Run
from ticklake.topics.writer import TopicWriter

__all__ = ["Database", "Message", "ProcessedBatches", "Run", "TopicReader", "TopicWriter"]
