"""Which events a consumer group has done (`processed_messages`). The table's constraint is what keeps it true."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import NamedTuple

from ticklake.checks.numbers import check_seconds
from ticklake.database import Transaction
from ticklake.topics import Run
from ticklake.topics.store import PACKAGE as TOPICS

PACKAGE = "ticklake.consumer"
CHUNK = 1000
WAIT_SECONDS = 1.0
"""So long a mark waits for another transaction: about as long as one takes messages."""

_log = logging.getLogger(__name__)


class Known(NamedTuple):
    """What a look before the work found: events that are done, and since when marks are kept (0: since ever)."""

    done: frozenset[str]
    kept_since_ms: int


class Marked(NamedTuple):
    """What became of marks: events whose work is now ours, and those that an open transaction of another one has."""

    ours: frozenset[str]
    elsewhere: frozenset[str]


class ProcessedMessages:
    """The marks of one group over one topic. An event is marked in the transaction that does its work."""

    def __init__(self, run: Run, topic: str, group: str) -> None:
        run.prepare(TOPICS)
        run.prepare(PACKAGE)
        self._run = run
        self._place = {"topic": topic, "group": group}

    def find(self, event_ids: Sequence[str]) -> Known:
        """Which of these events are done."""
        with self._run.reading() as view:
            sql = view.sql(PACKAGE)
            rows = sql.find_processed(group=self._place["group"], event_ids=json.dumps(event_ids))
            ((horizon,),) = sql.horizon(group=self._place["group"])
        return Known(frozenset(row[0] for row in rows), horizon)

    def mark(self, event_ids: Sequence[str], connection: Transaction, *, wait: float = WAIT_SECONDS) -> Marked:
        """Mark all that are not marked. Whoever is about to mark one of them is waited for, up to `wait` seconds."""
        values = {"event_ids": json.dumps(sorted(event_ids)), "wait_ms": max(1, round(wait * 1000))}
        rows = connection.sql(PACKAGE).mark(**self._place, **values)
        return Marked(frozenset(row[0] for row in rows if row[1]), frozenset(row[0] for row in rows if not row[1]))

    def unmark(self, event_ids: Sequence[str], connection: Transaction) -> None:
        """Take back what the same transaction has marked."""
        if event_ids:
            connection.sql(PACKAGE).unmark(group=self._place["group"], event_ids=json.dumps(event_ids))

    def prune(self, max_age: float) -> int:
        """Forget events done more than `max_age` seconds ago, in small transactions; how many.

        An event is kept for `max_age` longer than any message that is stored on one of the group's topics, this one or
        another, so one that was sent again within `max_age` is never done twice.
        """
        check_seconds("max_age", max_age)
        with self._run.transaction() as transaction:
            sql = transaction.sql(PACKAGE)
            # In a transaction that may write: on SQLite nobody else has one open then.
            ((now_ms, oldest_ms),) = sql.oldest_replay(**self._place)
            before = min(now_ms, now_ms if oldest_ms is None else oldest_ms) - round(max_age * 1000)
            sql.set_horizon(**self._place, before=before)
        removed, rows = 0, CHUNK
        while rows == CHUNK:
            with self._run.transaction() as transaction:
                rows = len(transaction.sql(PACKAGE).prune_processed(**self._place, before=before, limit=CHUNK))
            removed += rows
        _log.info("Forgot %d processed messages of %s on %s", removed, self._place["group"], self._place["topic"])
        return removed
