"""Retention: removes old messages, only on request. A delivery never removes a message."""

from __future__ import annotations

import json
import logging
from functools import partial
from typing import NamedTuple

from ticklake.checks.numbers import InvalidOption, check_count, check_seconds
from ticklake.database import Transaction
from ticklake.topics import removed as removed_files
from ticklake.topics.store import PACKAGE, TopicStore, count_fitting

_log = logging.getLogger(__name__)
CHUNK = 5_000
_FOR_EVER_MS = 1000 * 365 * 86_400_000
_ANY_NUMBER = 1 << 60


class Retention(NamedTuple):
    """What to keep of a topic: messages younger than `max_age` seconds, and at most `max_count` messages."""

    max_age: float | None = None
    max_count: int | None = None


def remove_outdated(
    store: TopicStore, topic: str, keep: Retention, *, force: bool = False, dry_run: bool = False
) -> int:
    """Removes outdated messages in small transactions and returns how many. The files they name stay on record.

    Messages with an open claim or a dead letter are kept. So are, unless forced, messages that a group still needs.
    """
    values = _values(topic, keep, force)
    if not dry_run:
        store.schema.prepare(removed_files.PACKAGE)
    removed = after = 0
    while True:
        rows = store.intervene(partial(_remove_next, store, {**values, "after": after}, dry_run=dry_run))
        if not rows:
            break
        removed += len(rows)
        after = rows[-1][0]
    if removed and not dry_run:
        _log.info("Removed %d messages from %s", removed, topic)
    return removed


def _remove_next(
    store: TopicStore, values: dict[str, object], transaction: Transaction, *, dry_run: bool
) -> list[tuple[int, str]]:
    """Removes and returns the next outdated messages. The groups are locked, so that none of them is claimed now."""
    topic, sql = str(values["topic"]), transaction.sql(PACKAGE)
    if not dry_run:
        store.lock_groups(topic, transaction)
    rows = sql.outdated(**values, limit=CHUNK)
    if rows and not dry_run:
        # Their data is read, to record the files they name, so few are removed at a time.
        rows = rows[: count_fitting(size for _, _, size in rows)]
        message_ids = [message_id for _, message_id, _ in rows]
        removed_files.record(transaction, topic, message_ids)
        sql.remove_claims(topic=topic, message_ids=json.dumps(message_ids))
        sql.remove_messages(topic=topic, message_ids=json.dumps(message_ids))
    return [(id_, message_id) for id_, message_id, _ in rows]


def _values(topic: str, keep: Retention, force: bool) -> dict[str, object]:
    if keep.max_age is None and keep.max_count is None:
        raise InvalidOption(option="retention", value=None, allowed="give a max_age, a max_count or both")
    if keep.max_age is not None:
        check_seconds("max_age", keep.max_age, most=_FOR_EVER_MS)
    if keep.max_count is not None:
        check_count("max_count", keep.max_count)
    return {
        "topic": topic,
        "max_age_ms": _FOR_EVER_MS if keep.max_age is None else min(round(keep.max_age * 1000), _FOR_EVER_MS),
        "max_count": _ANY_NUMBER if keep.max_count is None else keep.max_count,
        "force": int(force),
    }
