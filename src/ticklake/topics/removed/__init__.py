"""The files of removed messages. They were announced once, so they are not announced again."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ticklake.database import Schema, Transaction
from ticklake.database.versions import package_versions
from ticklake.topics.envelope import unwrap
from ticklake.topics.errors import UndecodableMessage

PACKAGE = "ticklake.topics.removed"


def record(transaction: Transaction, topic: str, message_ids: Sequence[str]) -> None:
    """Stores the keys of the files that these messages name. Use the transaction that removes the messages."""
    sql = transaction.sql(PACKAGE)
    envelopes = sql.envelopes(topic=topic, message_ids=json.dumps(message_ids))
    keys = sorted({key for (envelope,) in envelopes if (key := _file_of(envelope))})
    sql.add_files(topic=topic, keys=json.dumps(keys))


def files(schema: Schema, topic: str) -> frozenset[str]:
    """Returns the keys of all files whose messages were removed from a topic. Creates no tables."""
    if not _has_tables(schema):
        return frozenset()
    with schema.reading() as transaction:
        return frozenset(key for (key,) in transaction.sql(PACKAGE).files(topic=topic))


def topics(schema: Schema) -> list[str]:
    """Returns the topics of removed messages. Such a topic may have no messages and no groups any more."""
    if not _has_tables(schema):
        return []
    with schema.reading() as transaction:
        return [topic for (topic,) in transaction.sql(PACKAGE).topics()]


def _has_tables(schema: Schema) -> bool:
    return any(found.package == PACKAGE for found in package_versions(schema))


def _file_of(envelope: bytes) -> str:
    """Returns the key that a message names; empty if it names none or cannot be decoded."""
    try:
        return str(getattr(unwrap(envelope).payload, "storage_key", "")).replace("\x00", "")
    except UndecodableMessage:
        return ""
