"""Dead letters: messages that cannot be decoded or failed too often. They are kept until replayed or discarded."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import NamedTuple

from ticklake.checks.numbers import check_count
from ticklake.database import Transaction
from ticklake.topics.envelope import Opened, unwrap
from ticklake.topics.errors import UndecodableMessage
from ticklake.topics.store import PACKAGE, TopicStore


class DeadLetter(NamedTuple):
    """A message that a group does not try any more."""

    topic: str
    group: str
    message_id: str
    attempts: int
    error: str
    traceback: str
    dead_at_ms: int
    envelope: bytes

    def opened(self) -> Opened | None:
        """Returns the decoded message; None if it cannot be decoded."""
        try:
            return unwrap(self.envelope)
        except UndecodableMessage:
            return None


@dataclass(frozen=True)
class DeadLetterFilter:
    """Selects the dead letters that match all given values. `error` matches a part of the error text."""

    topic: str | None = None
    group: str | None = None
    message_id: str | None = None
    error: str | None = None


ALL = DeadLetterFilter()


class DeadLetters:
    """The dead letters of a run."""

    def __init__(self, store: TopicStore) -> None:
        self._store = store

    def list(self, which: DeadLetterFilter = ALL, limit: int = 100) -> list[DeadLetter]:
        """Returns dead letters, oldest first."""
        check_count("limit", limit)
        with self._store.schema.reading() as transaction:
            rows = transaction.sql(PACKAGE).dead_letters(**asdict(which), limit=limit)
        return [DeadLetter(*row) for row in rows]

    def count(self, which: DeadLetterFilter = ALL) -> int:
        """Returns the number of matching dead letters."""
        with self._store.schema.reading() as transaction:
            ((found,),) = transaction.sql(PACKAGE).count_dead_letters(**asdict(which))
        return int(found)

    def replay(self, which: DeadLetterFilter = ALL, *, dry_run: bool = False) -> int:
        """Delivers them again, with all attempts. The position of the group does not change.

        Returns the number of added deliveries. A message after the position of its group is not counted, because it is
        delivered anyway; its dead letter is removed too.
        """
        if dry_run:
            with self._store.schema.reading() as view:
                ((found,),) = view.sql(PACKAGE).count_replayable(**asdict(which))
            return int(found)

        def replay(transaction: Transaction) -> int:
            sql = transaction.sql(PACKAGE)
            removed = sql.remove_dead_letters(**asdict(which))
            for topic, group in sorted({row[:2] for row in removed}):
                sql.lock_position(topic=topic, group=group)  # a concurrent reset would deliver them too
            reopened = sql.reopen(letters=json.dumps(removed))
            for topic in sorted({row[0] for row in removed}):
                transaction.notify(topic)
            return len(reopened)

        return self._store.intervene(replay)

    def discard(self, which: DeadLetterFilter = ALL) -> int:
        """Removes them and returns how many. The messages stay in the topic, but the group never gets them again."""
        return self._store.intervene(
            lambda transaction: len(transaction.sql(PACKAGE).remove_dead_letters(**asdict(which)))
        )
