"""Batches of events in a SQLite file. They are on disk when `store` returns."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from ticklake import faults
from ticklake.database.schema import Statements, Transaction
from ticklake.database.sqlite import SqliteSchema
from ticklake.events.errors import BadEvent, QueueLost
from ticklake.events.event import Event, Line, decode, joined

PACKAGE = "ticklake.events"
CHUNK = 1000


@dataclass
class Batch:
    """Events in the order of arrival. `sequence` grows with each batch and is never used twice."""

    batch_id: str
    created_at: float
    events: list[Event]
    event_count: int
    status: str
    sequence: int = 0
    attempts: int = 0
    size: int = 0
    """The size of its events in the file, in bytes."""


class DeadBatch(NamedTuple):
    """A batch that is not tried any more. `events` is None if they cannot be decoded."""

    batch_id: str
    sequence: int
    events: list[Event] | None
    event_count: int
    attempts: int
    error: str
    dead_at: float


class Stored(NamedTuple):
    """The number of new and of duplicate events."""

    new: int
    duplicates: int


class Next(NamedTuple):
    """The next batch, or the seconds until there may be one (None: after the next store). `dead`: new dead batches."""

    batch: Batch | None = None
    wait: float | None = None
    dead: tuple[str, ...] = ()


@dataclass
class _Open:
    """The newest batch, while events can be added to it. Its size is only in the database."""

    batch_id: str
    closes_at: float


class Batches:
    """The file of a queue. One process at a time opens it.

    The state in memory is changed only after a successful commit. After any error it is read from the file again, and
    claims that are not held here are released.
    """

    def __init__(
        self,
        path: Path,
        *,
        batch_size: int,
        batch_bytes: int,
        timeout: float,
        max_attempts: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._schema = SqliteSchema(path, "indexer-queue")
        self._batch_size = batch_size
        self._batch_bytes = batch_bytes
        self._timeout = timeout
        self._max_attempts = max_attempts
        self._clock = clock
        self._lock = threading.RLock()
        self._owner = uuid4().hex
        self._open: _Open | None = None
        self._held: set[str] = set()
        self._uncertain = False
        self.pending = 0
        self.queue_id = ""

    def recover(self) -> int:
        """Becomes the owner of the queue and releases all claimed batches. Returns how many."""
        self._schema.prepare(PACKAGE)
        with self._lock, self._schema.transaction() as transaction:
            sql = transaction.sql(PACKAGE)
            sql.set_cache()
            sql.set_checkpoint()
            sql.set_owner(owner=self._owner)
            released = len(sql.release_all())
            transaction.after_commit(partial(self._counted, _repair_waiting(sql)))
            ((self.queue_id,),) = sql.queue_id()
        return released

    def store(self, lines: Sequence[Line], age: float = 0.0) -> Stored:
        """Stores the new events, all or none, in the open batch if they fit, else in a new one.

        `age`: the seconds that the first of them has waited.
        """
        with self._writing() as (sql, transaction):
            now = self._clock()
            growing = self._growing(sql, lines)
            batch_id = growing or str(uuid4())
            new = _new(sql, lines, batch_id, now)
            faults.reach("events.batch")
            count = len(new)
            if new and growing:
                ((count,),) = sql.append_to_batch(batch_id=batch_id, count=count, data=joined(new))
            elif new:
                sql.add_batch(batch_id=batch_id, created_at=now, count=count, data=joined(new))
                sql.add_sequence(batch_id=batch_id)
                transaction.after_commit(partial(self._opened, batch_id, time.monotonic() + self._timeout - age))
            if count >= self._batch_size:
                transaction.after_commit(self._closed)
            faults.reach("events.commit")
        faults.reach("events.committed")
        return Stored(len(new), len(lines) - len(new))

    def next(self) -> Next:
        """Claims the oldest pending batch that is closed. Makes batches without attempts left dead letters."""
        dead: list[str] = []
        with self._writing(durable=False) as (sql, transaction):
            while rows := sql.next_batch():
                batch_id, created_at, count, data, attempts, sequence = rows[0]
                if wait := self._until_closed(batch_id):
                    return Next(wait=wait, dead=tuple(dead))
                transaction.after_commit(partial(self._claimed, batch_id))
                events = self._events(sql, batch_id, data, attempts)
                if events is not None:
                    sql.claim_batch(batch_id=batch_id)
                    sql.set_waiting(batch_id=batch_id, waiting=0)
                    transaction.after_commit(partial(self._held.add, batch_id))
                    batch = Batch(batch_id, created_at, events, count, "processing", sequence, attempts + 1, len(data))
                    return Next(batch, dead=tuple(dead))
                dead.append(batch_id)
        return Next(dead=tuple(dead))

    def assign(self, batch_ids: Sequence[str], run_id: str) -> int:
        """Records that these batches belong to a run. Returns the number of the run's first batch."""
        with self._writing(durable=False) as (sql, _):
            sql.assign.many({"batch_id": batch_id, "run_id": run_id} for batch_id in batch_ids)
            ((first,),) = sql.first_of_run(run_id=run_id)
        return int(first)

    def finish(self, batch_id: str) -> bool:
        """Marks a claimed batch as done. Returns False if it is not claimed."""
        with self._writing(durable=False) as (sql, transaction):
            transaction.after_commit(partial(self._held.discard, batch_id))
            return bool(sql.finish_batch(batch_id=batch_id))

    def fail(self, batch_id: str, error: str) -> bool:
        """Releases a batch for another attempt. After the last attempt, makes it a dead letter and returns True."""
        with self._writing() as (sql, transaction):
            rows = sql.attempts(batch_id=batch_id)
            if not rows:
                return False
            transaction.after_commit(partial(self._held.discard, batch_id))
            if rows[0][0] >= self._max_attempts:
                self._bury(sql, batch_id, error)
                return True
            sql.release(batch_id=batch_id)
            sql.set_waiting(batch_id=batch_id, waiting=1)
            transaction.after_commit(self._released)
        return False

    def dead(self, limit: int) -> list[DeadBatch]:
        """Returns dead letters, oldest first."""
        with self._schema.reading() as view:
            rows = view.sql(PACKAGE).dead_batches(limit=limit)
        return [
            DeadBatch(batch_id, sequence, _readable(data), count, attempts, error, dead_at)
            for batch_id, _, count, data, attempts, sequence, error, dead_at in rows
        ]

    def count_dead(self) -> int:
        with self._schema.reading() as view:
            ((found,),) = view.sql(PACKAGE).count_dead()
        return int(found)

    def replay(self, batch_id: str) -> bool:
        """Makes a dead letter pending again. Returns False if there is none with this id."""
        with self._writing() as (sql, transaction):
            revived = bool(sql.revive(batch_id=batch_id))
            sql.remove_dead(batch_id=batch_id)
            if revived:
                sql.set_waiting(batch_id=batch_id, waiting=1)
                transaction.after_commit(self._released)
        return revived

    def prune(self, max_age: float) -> tuple[int, int]:
        """Removes done batches and old event ids, in small transactions. Returns how many of each."""
        now = self._clock()
        old = self._prune_batches("prune_batches", before=now - max_age)
        ahead = self._prune_batches("prune_ahead", now=now, sequence=max(old, default=0))
        return len(old) + len(ahead), self._prune_events(now, now - max_age)

    def close(self) -> None:
        self._schema.close()

    @contextmanager
    def _writing(self, *, durable: bool = True) -> Iterator[tuple[Statements, Transaction]]:
        """Begins a transaction. Raises `QueueLost` if another process has become the owner."""
        with self._lock:
            try:
                with self._schema.transaction(durable=durable) as transaction:
                    sql = transaction.sql(PACKAGE)
                    if not sql.is_owner(owner=self._owner):
                        raise QueueLost(queue=self._schema.path)
                    if self._uncertain:
                        sql.release_unknown(held=json.dumps(list(self._held)))
                        transaction.after_commit(partial(self._counted, _repair_waiting(sql)))
                    yield sql, transaction
            except BaseException:
                # The commit may have succeeded without the changes in memory that follow it.
                self._uncertain, self._open = True, None
                raise

    def _prune_batches(self, statement: str, **values: float) -> list[int]:
        """Removes batches and returns their numbers."""
        numbers: list[int] = []
        removed = CHUNK
        while removed == CHUNK:
            with self._writing() as (sql, _):
                rows = getattr(sql, statement)(**values, limit=CHUNK)
                numbers += [row[0] for row in sql.remove_sequence.many({"batch_id": row[0]} for row in rows)]
            removed = len(rows)
        return numbers

    def _prune_events(self, now: float, before: float) -> int:
        removed = after = 0
        while True:
            with self._writing() as (sql, _):
                rows = sql.event_after(after=after, now=now)
                if not rows or rows[0][1] >= before:
                    return removed
                old, first = rows[0][0], after + 1
                after = old + CHUNK - 1
                removed += len(sql.prune_events(first=first, last=after, old=old, before=before, now=now))

    def _growing(self, sql: Statements, lines: Sequence[Line]) -> str | None:
        """Returns the open batch if all these events fit into it; else None."""
        if self._open is None or time.monotonic() >= self._open.closes_at:
            return None
        for count, size in sql.size_of_pending(batch_id=self._open.batch_id):
            if count + len(lines) <= self._batch_size and size + _bytes(lines) <= self._batch_bytes:
                return self._open.batch_id
        return None

    def _until_closed(self, batch_id: str) -> float:
        """Returns the seconds until a batch is closed."""
        if self._open is None or self._open.batch_id != batch_id:
            return 0.0
        return max(0.0, self._open.closes_at - time.monotonic())

    def _counted(self, pending: int) -> None:
        self.pending, self._uncertain = pending, False

    def _opened(self, batch_id: str, closes_at: float) -> None:
        self.pending += 1
        self._open = _Open(batch_id, closes_at)

    def _closed(self) -> None:
        self._open = None

    def _released(self) -> None:
        self.pending += 1

    def _claimed(self, batch_id: str) -> None:
        self.pending -= 1
        if self._open is not None and self._open.batch_id == batch_id:
            self._open = None

    def _events(self, sql: Statements, batch_id: str, data: bytes, attempts: int) -> list[Event] | None:
        """Returns the events of a batch. If it cannot be delivered, makes it a dead letter and returns None."""
        error = f"delivered {attempts} times and never finished"
        if attempts < self._max_attempts:
            try:
                return decode(data)
            except BadEvent as bad:
                error = str(bad)
        self._bury(sql, batch_id, error)
        return None

    def _bury(self, sql: Statements, batch_id: str, error: str) -> None:
        sql.bury(batch_id=batch_id, error=error, now=self._clock())
        sql.remove_batch(batch_id=batch_id)
        sql.set_waiting(batch_id=batch_id, waiting=0)


def _repair_waiting(sql: Statements) -> int:
    """Corrects the column `waiting` of all batches. Returns the number of pending batches."""
    sql.find_waiting()
    sql.find_not_waiting()
    ((pending,),) = sql.count_pending()
    return int(pending)


def _new(sql: Statements, lines: Sequence[Line], batch_id: str, now: float) -> list[Line]:
    """Adds the event ids and returns the new events: the first one of each new id."""
    ids = json.dumps([line.event_id for line in lines])
    added = {row[0] for row in sql.add_events(event_ids=ids, batch_id=batch_id, now=now)}
    firsts = {line.event_id: line for line in reversed(lines)}
    return [line for line in lines if line.event_id in added and firsts[line.event_id] is line]


def _bytes(lines: Sequence[Line]) -> int:
    return sum(len(line.text) for line in lines)


def _readable(data: bytes) -> list[Event] | None:
    try:
        return decode(data)
    except BadEvent:
        return None
