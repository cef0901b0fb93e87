"""Batches of events in a SQLite file. What `store` has returned for is on disk."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from ticklake import faults
from ticklake.database.schema import Statements
from ticklake.database.sqlite import SqliteSchema
from ticklake.events.errors import BadEvent
from ticklake.events.event import Event, Line, decode, joined

PACKAGE = "ticklake.events"
CHUNK = 1000
_APART = 0.000002  # the least by which two times of today differ as floating point numbers, with room to spare


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
    """The newest batch as long as it may grow."""

    batch_id: str
    closes_at: float
    room: int
    room_bytes: int


class Batches:
    """The file of one queue, opened by one process at a time."""

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
        self._open: _Open | None = None
        self._last_created = 0.0
        self.pending = 0
        self.queue_id = ""

    def recover(self) -> int:
        """Make what was in somebody's hands pending again; how many batches."""
        self._schema.prepare(PACKAGE)
        with self._lock, self._schema.transaction() as transaction:
            sql = transaction.sql(PACKAGE)
            sql.set_cache()
            sql.set_checkpoint()
            given_back = len(sql.give_back_all())
            ((self.pending,),) = sql.count_pending()
            ((last,),) = sql.last_created()
            ((self.queue_id,),) = sql.queue_id()
            self._last_created, self._open = last or 0.0, None
        return given_back

    def store(self, lines: Sequence[Line], age: float = 0.0) -> Stored:
        """Write those that are new, all or none: into the open batch where they fit, else as a new one.

        `age`: for how many seconds the first of them has waited.
        """
        with self._lock:
            now = self._clock()
            opened = self._opened(lines)
            batch_id = opened.batch_id if opened else str(uuid4())
            with self._schema.transaction() as transaction:
                sql = transaction.sql(PACKAGE)
                new = _new(sql, lines, batch_id, now)
                faults.reach("events.batch")
                created_at = max(now, self._last_created + _APART)
                self._write(sql, new, batch_id, None if opened else created_at)
                faults.reach("events.commit")
            faults.reach("events.committed")
            if new:
                self._written(opened or self._begun(batch_id, created_at, age), new)
        return Stored(len(new), len(lines) - len(new))

    def next(self) -> Next:
        """Claim the oldest pending batch that is closed. One that was delivered too often is a dead letter."""
        if not self.pending:
            return Next()
        dead: list[str] = []
        with self._lock, self._schema.transaction(durable=False) as transaction:
            sql = transaction.sql(PACKAGE)
            while rows := sql.next_batch():
                batch_id, created_at, count, data, attempts, sequence = rows[0]
                if wait := self._until_closed(batch_id):
                    return Next(wait=wait, dead=tuple(dead))
                transaction.after_commit(partial(self._taken, batch_id))
                events = self._events(sql, batch_id, data, attempts)
                if events is not None:
                    sql.claim_batch(batch_id=batch_id)
                    batch = Batch(batch_id, created_at, events, count, "processing", sequence, attempts + 1, len(data))
                    return Next(batch, dead=tuple(dead))
                dead.append(batch_id)
        return Next(dead=tuple(dead))

    def assign(self, batch_ids: Sequence[str], run_id: str) -> int:
        """Record that these batches belong to a run. Returns the number of the run's first batch."""
        with self._schema.transaction(durable=False) as transaction:
            sql = transaction.sql(PACKAGE)
            sql.assign.many({"batch_id": batch_id, "run_id": run_id} for batch_id in batch_ids)
            ((first,),) = sql.first_of_run(run_id=run_id)
        return int(first)

    def finish(self, batch_id: str) -> bool:
        with self._schema.transaction(durable=False) as transaction:
            return bool(transaction.sql(PACKAGE).finish_batch(batch_id=batch_id))

    def fail(self, batch_id: str, error: str) -> bool:
        """Back in its place, for another attempt (False); or, after the last one, a dead letter (True)."""
        with self._lock, self._schema.transaction() as transaction:
            sql = transaction.sql(PACKAGE)
            rows = sql.attempts(batch_id=batch_id)
            if not rows:
                return False
            if rows[0][0] >= self._max_attempts:
                self._bury(sql, batch_id, error)
                return True
            sql.give_back(batch_id=batch_id)
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
        with self._lock, self._schema.transaction() as transaction:
            sql = transaction.sql(PACKAGE)
            revived = bool(sql.revive(batch_id=batch_id))
            sql.remove_dead(batch_id=batch_id)
            if revived:
                transaction.after_commit(self._given_back)
        return revived

    def prune(self, max_age: float) -> tuple[int, int]:
        """Forget done batches and the ids of their events, in small transactions; how many of each."""
        before = self._clock() - max_age
        batches, removed = 0, CHUNK
        while removed == CHUNK:
            with self._schema.transaction() as transaction:
                sql = transaction.sql(PACKAGE)
                rows = sql.prune_batches(before=before, limit=CHUNK)
                sql.forget_sequence.many({"batch_id": row[0]} for row in rows)
            removed = len(rows)
            batches += removed
        return batches, self._prune_events(before)

    def close(self) -> None:
        self._schema.close()

    def _prune_events(self, before: float) -> int:
        removed = after = 0
        while True:
            with self._schema.transaction() as transaction:
                sql = transaction.sql(PACKAGE)
                rows = sql.event_after(after=after)
                if not rows or rows[0][1] >= before:
                    return removed
                after = rows[0][0] + CHUNK - 1
                removed += len(sql.prune_events(first=rows[0][0], last=after, before=before))

    def _opened(self, lines: Sequence[Line]) -> _Open | None:
        """The open batch, where all of these fit into it."""
        opened = self._open
        if opened is None or time.monotonic() >= opened.closes_at:
            return None
        return opened if len(lines) <= opened.room and _bytes(lines) <= opened.room_bytes else None

    def _until_closed(self, batch_id: str) -> float:
        if self._open is None or self._open.batch_id != batch_id:
            return 0.0
        return max(0.0, self._open.closes_at - time.monotonic())

    def _begun(self, batch_id: str, created_at: float, age: float) -> _Open:
        self._last_created = created_at
        self.pending += 1
        return _Open(batch_id, time.monotonic() + self._timeout - age, self._batch_size, self._batch_bytes)

    def _written(self, opened: _Open, new: Sequence[Line]) -> None:
        opened.room -= len(new)
        opened.room_bytes -= _bytes(new)
        self._open = opened if opened.room > 0 else None

    def _given_back(self) -> None:
        self.pending += 1

    def _taken(self, batch_id: str) -> None:
        self.pending -= 1
        if self._open is not None and self._open.batch_id == batch_id:
            self._open = None

    @staticmethod
    def _write(sql: Statements, new: Sequence[Line], batch_id: str, created_at: float | None) -> None:
        if new and created_at is None:
            sql.append_to_batch(batch_id=batch_id, count=len(new), data=joined(new))
        elif new:
            sql.add_batch(batch_id=batch_id, created_at=created_at, count=len(new), data=joined(new))
            sql.add_sequence(batch_id=batch_id)

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
