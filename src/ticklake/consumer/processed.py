"""The processed events of a consumer group (`processed_messages`). A constraint ensures one mark per event."""

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
"""How long `mark` waits for another transaction: about as long as a transaction starts messages."""

_log = logging.getLogger(__name__)


class Known(NamedTuple):
    """The processed events, and the time before which marks were removed (0: none were removed)."""

    done: frozenset[str]
    kept_since_ms: int


class Marked(NamedTuple):
    """The events that this transaction has marked, and those that another open transaction has marked."""

    ours: frozenset[str]
    elsewhere: frozenset[str]


class ProcessedMessages:
    """The marks of a group on a topic. An event is marked in the transaction of its work."""

    def __init__(self, run: Run, topic: str, group: str) -> None:
        run.prepare(TOPICS)
        run.prepare(PACKAGE)
        self._run = run
        self._place = {"topic": topic, "group": group}

    def find(self, event_ids: Sequence[str]) -> Known:
        """Returns which of these events are processed."""
        with self._run.reading() as view:
            sql = view.sql(PACKAGE)
            rows = sql.find_processed(group=self._place["group"], event_ids=json.dumps(event_ids))
            ((horizon,),) = sql.horizon(group=self._place["group"])
        return Known(frozenset(row[0] for row in rows), horizon)

    def mark(self, event_ids: Sequence[str], connection: Transaction, *, wait: float = WAIT_SECONDS) -> Marked:
        """Marks events that are not marked. Waits up to `wait` seconds for other transactions that mark the same."""
        values = {"event_ids": json.dumps(sorted(event_ids)), "wait_ms": max(1, round(wait * 1000))}
        rows = connection.sql(PACKAGE).mark(**self._place, **values)
        return Marked(frozenset(row[0] for row in rows if row[1]), frozenset(row[0] for row in rows if not row[1]))

    def unmark(self, event_ids: Sequence[str], connection: Transaction) -> None:
        """Removes marks of the same transaction."""
        if event_ids:
            connection.sql(PACKAGE).unmark(group=self._place["group"], event_ids=json.dumps(event_ids))

    def prune(self, max_age: float) -> int:
        """Removes marks that are older than `max_age` seconds, in small transactions. Returns how many.

        A mark is kept for `max_age` longer than the messages on the topics of the group. So an event that is sent again
        within `max_age` is not processed twice.
        """
        check_seconds("max_age", max_age)
        with self._run.transaction() as transaction:
            sql = transaction.sql(PACKAGE)
            # A write transaction, because then no other one is open on SQLite.
            ((now_ms, oldest_ms),) = sql.oldest_replay(**self._place)
            before = min(now_ms, now_ms if oldest_ms is None else oldest_ms) - round(max_age * 1000)
            sql.set_horizon(**self._place, before=before)
        removed, rows = 0, CHUNK
        while rows == CHUNK:
            with self._run.transaction() as transaction:
                rows = len(transaction.sql(PACKAGE).prune_processed(**self._place, before=before, limit=CHUNK))
            removed += rows
        _log.info(
            "Removed %d marks of processed messages of %s on %s", removed, self._place["group"], self._place["topic"]
        )
        return removed
