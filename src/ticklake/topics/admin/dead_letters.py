"""Dead letters: messages that could not be decoded or failed too often, kept until somebody decides."""

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
    """A message that one group has given up on."""

    topic: str
    group: str
    message_id: str
    attempts: int
    error: str
    traceback: str
    dead_at_ms: int
    envelope: bytes

    def opened(self) -> Opened | None:
        """The message itself, where it can be decoded."""
        try:
            return unwrap(self.envelope)
        except UndecodableMessage:
            return None


@dataclass(frozen=True)
class DeadLetterFilter:
    """Which dead letters: all that match everything that is given. `error` is a part of the error's text."""

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
        """The oldest first."""
        check_count("limit", limit)
        with self._store.schema.reading() as transaction:
            rows = transaction.sql(PACKAGE).dead_letters(**asdict(which), limit=limit)
        return [DeadLetter(*row) for row in rows]

    def count(self, which: DeadLetterFilter = ALL) -> int:
        """The number of dead letters that match."""
        with self._store.schema.reading() as transaction:
            ((found,),) = transaction.sql(PACKAGE).count_dead_letters(**asdict(which))
        return int(found)

    def replay(self, which: DeadLetterFilter = ALL, *, dry_run: bool = False) -> int:
        """Have them delivered again, with all their attempts before them; the group's position stays.

        Returns how many are delivered because of this. One that the group meets anyway, because it was set back, is not
        among them; it is no dead letter any more either.
        """
        if dry_run:
            with self._store.schema.reading() as view:
                ((found,),) = view.sql(PACKAGE).count_replayable(**asdict(which))
            return int(found)

        def replay(transaction: Transaction) -> int:
            sql = transaction.sql(PACKAGE)
            taken = sql.take_dead_letters(**asdict(which))
            for topic, group in sorted({row[:2] for row in taken}):
                sql.lock_position(topic=topic, group=group)  # a reset beside this would meet them again
            reopened = sql.reopen(letters=json.dumps(taken))
            for topic in sorted({row[0] for row in taken}):
                transaction.notify(topic)
            return len(reopened)

        return self._store.intervene(replay)

    def discard(self, which: DeadLetterFilter = ALL) -> int:
        """Forget them: the messages stay in their topic and are never delivered to those groups again. How many."""
        return self._store.intervene(lambda act: len(act.sql(PACKAGE).take_dead_letters(**asdict(which))))
