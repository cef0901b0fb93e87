"""Batches of events in a SQLite file. What `store` has returned for is on disk."""

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
    """Events in the order in which they came. `sequence` grows from batch to batch and is never given twice."""

    batch_id: str
    created_at: float
    events: list[Event]
    event_count: int
    status: str
    sequence: int = 0
    attempts: int = 0
    size: int = 0
    """The bytes of its events in the file."""


class DeadBatch(NamedTuple):
    """A batch that was given up; its events as far as they can be decoded."""

    batch_id: str
    sequence: int
    events: list[Event] | None
    event_count: int
    attempts: int
    error: str
    dead_at: float


class Stored(NamedTuple):
    new: int
    duplicates: int


class Next(NamedTuple):
    """The next batch; or seconds until there may be one (None: when something is stored); and who died on the way."""

    batch: Batch | None = None
    wait: float | None = None
    dead: tuple[str, ...] = ()


@dataclass
class _Open:
    """The newest batch as long as it may grow. How far it is filled, the database knows."""

    batch_id: str
    closes_at: float


class Batches:
    """The file of one queue, opened by one process at a time.

    What is remembered here follows the file: it changes after a commit that has succeeded. After any error it is read
    anew, and what was claimed without anybody knowing is given back.
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
        self._in_hand: set[str] = set()
        self._doubtful = False
        self.pending = 0
        self.queue_id = ""

    def recover(self) -> int:
        """Own the queue, and make what was in somebody's hands pending again; how many batches."""
        self._schema.prepare(PACKAGE)
        with self._lock, self._schema.transaction() as transaction:
            sql = transaction.sql(PACKAGE)
            sql.set_cache()
            sql.set_checkpoint()
            sql.set_owner(owner=self._owner)
            given_back = len(sql.give_back_all())
            transaction.after_commit(partial(self._counted, _waiting(sql)))
            ((self.queue_id,),) = sql.queue_id()
        return given_back

    def store(self, lines: Sequence[Line], age: float = 0.0) -> Stored:
        """Write those that are new, all or none: into the open batch where they fit, else as a new one.

        `age`: for how many seconds the first of them has waited.
        """
        with self._writing() as (sql, transaction):
            now = self._clock()
            growing = self._growing(sql, lines)
            batch_id = growing or str(uuid4())
            new = _new(sql, lines, batch_id, now)
            faults.reach("events.batch")
            if new and growing:
                sql.append_to_batch(batch_id=batch_id, count=len(new), data=joined(new))
            elif new:
                sql.add_batch(batch_id=batch_id, created_at=now, count=len(new), data=joined(new))
                sql.add_sequence(batch_id=batch_id)
                transaction.after_commit(partial(self._begun, batch_id, time.monotonic() + self._timeout - age))
            if new and sql.size_of_pending(batch_id=batch_id)[0][0] >= self._batch_size:
                transaction.after_commit(self._closed)
            faults.reach("events.commit")
        faults.reach("events.committed")
        return Stored(len(new), len(lines) - len(new))

    def next(self) -> Next:
        """Claim the oldest pending batch that is closed. One that was delivered too often is a dead letter."""
        dead: list[str] = []
        with self._writing(durable=False) as (sql, transaction):
            while rows := sql.next_batch():
                batch_id, created_at, count, data, attempts, sequence = rows[0]
                if wait := self._until_closed(batch_id):
                    return Next(wait=wait, dead=tuple(dead))
                transaction.after_commit(partial(self._taken, batch_id))
                events = self._events(sql, batch_id, data, attempts)
                if events is not None:
                    sql.claim_batch(batch_id=batch_id)
                    sql.set_waiting(batch_id=batch_id, waiting=0)
                    transaction.after_commit(partial(self._in_hand.add, batch_id))
                    batch = Batch(batch_id, created_at, events, count, "processing", sequence, attempts + 1, len(data))
                    return Next(batch, dead=tuple(dead))
                dead.append(batch_id)
        return Next(dead=tuple(dead))

    def assign(self, batch_ids: Sequence[str], run_id: str) -> int:
        """Record that these batches belong to a run. Returns the number of the run's first batch."""
        with self._writing(durable=False) as (sql, _):
            sql.assign.many({"batch_id": batch_id, "run_id": run_id} for batch_id in batch_ids)
            ((first,),) = sql.first_of_run(run_id=run_id)
        return int(first)

    def finish(self, batch_id: str) -> bool:
        with self._writing(durable=False) as (sql, transaction):
            transaction.after_commit(partial(self._in_hand.discard, batch_id))
            return bool(sql.finish_batch(batch_id=batch_id))

    def fail(self, batch_id: str, error: str) -> bool:
        """Back in its place, for another attempt (False); or, after the last one, a dead letter (True)."""
        with self._writing() as (sql, transaction):
            rows = sql.attempts(batch_id=batch_id)
            if not rows:
                return False
            transaction.after_commit(partial(self._in_hand.discard, batch_id))
            if rows[0][0] >= self._max_attempts:
                self._bury(sql, batch_id, error)
                return True
            sql.give_back(batch_id=batch_id)
            sql.set_waiting(batch_id=batch_id, waiting=1)
            transaction.after_commit(self._given_back)
        return False

    def dead(self, limit: int) -> list[DeadBatch]:
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
        with self._writing() as (sql, transaction):
            revived = bool(sql.revive(batch_id=batch_id))
            sql.remove_dead(batch_id=batch_id)
            if revived:
                sql.set_waiting(batch_id=batch_id, waiting=1)
                transaction.after_commit(self._given_back)
        return revived

    def prune(self, max_age: float) -> tuple[int, int]:
        """Forget done batches and the ids of their events, in small transactions; how many of each."""
        now = self._clock()
        old = self._prune_batches("prune_batches", before=now - max_age)
        ahead = self._prune_batches("prune_ahead", now=now, sequence=max(old, default=0))
        return len(old) + len(ahead), self._prune_events(now, now - max_age)

    def close(self) -> None:
        self._schema.close()

    @contextmanager
    def _writing(self, *, durable: bool = True) -> Iterator[tuple[Statements, Transaction]]:
        """A transaction of the owner. Raises `QueueLost` if somebody else is the owner by now."""
        with self._lock:
            try:
                with self._schema.transaction(durable=durable) as transaction:
                    sql = transaction.sql(PACKAGE)
                    if not sql.is_owner(owner=self._owner):
                        raise QueueLost(queue=self._schema.path)
                    if self._doubtful:
                        sql.give_back_unknown(in_hand=json.dumps(list(self._in_hand)))
                        transaction.after_commit(partial(self._counted, _waiting(sql)))
                    yield sql, transaction
            except BaseException:
                # A commit may have succeeded, and what follows it was not done.
                self._doubtful, self._open = True, None
                raise

    def _prune_batches(self, statement: str, **values: float) -> list[int]:
        """The numbers of the batches that were forgotten."""
        forgotten: list[int] = []
        removed = CHUNK
        while removed == CHUNK:
            with self._writing() as (sql, _):
                rows = getattr(sql, statement)(**values, limit=CHUNK)
                forgotten += [row[0] for row in sql.forget_sequence.many({"batch_id": row[0]} for row in rows)]
            removed = len(rows)
        return forgotten

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
        """The open batch, if all of these fit into it."""
        if self._open is None or time.monotonic() >= self._open.closes_at:
            return None
        for count, size in sql.size_of_pending(batch_id=self._open.batch_id):
            if count + len(lines) <= self._batch_size and size + _bytes(lines) <= self._batch_bytes:
                return self._open.batch_id
        return None

    def _until_closed(self, batch_id: str) -> float:
        if self._open is None or self._open.batch_id != batch_id:
            return 0.0
        return max(0.0, self._open.closes_at - time.monotonic())

    def _counted(self, pending: int) -> None:
        self.pending, self._doubtful = pending, False

    def _begun(self, batch_id: str, closes_at: float) -> None:
        self.pending += 1
        self._open = _Open(batch_id, closes_at)

    def _closed(self) -> None:
        self._open = None

    def _given_back(self) -> None:
        self.pending += 1

    def _taken(self, batch_id: str) -> None:
        self.pending -= 1
        if self._open is not None and self._open.batch_id == batch_id:
            self._open = None

    def _events(self, sql: Statements, batch_id: str, data: bytes, attempts: int) -> list[Event] | None:
        """None where the batch cannot be delivered (any more): then it is dead."""
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


def _waiting(sql: Statements) -> int:
    """Finds the batches that wait to be delivered; how many."""
    sql.find_waiting()
    sql.find_not_waiting()
    ((pending,),) = sql.count_pending()
    return int(pending)


def _new(sql: Statements, lines: Sequence[Line], batch_id: str, now: float) -> list[Line]:
    """Those whose id is not there yet; of several with one id the first."""
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
