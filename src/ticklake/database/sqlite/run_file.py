"""The file of one run: its connections and transactions. A write transaction acquires the write lock at its start."""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import apsw

from ticklake import faults
from ticklake.database.errors import (
    DatabaseBusy,
    DatabaseClosed,
    DatabaseMoved,
    DatabaseUnusable,
    NestedTransaction,
    ReadingOnly,
)
from ticklake.database.fork import Fork, Inheritable, leak
from ticklake.database.interrupt_safe import Turn
from ticklake.database.schema import Row, Transaction, ignore_count
from ticklake.database.sqlite import forked_files
from ticklake.database.sqlite.commit_guard import Guard
from ticklake.database.sqlite.connecting import connect, translated
from ticklake.database.sqlite.file_identity import Place, has_moved, make_directory
from ticklake.database.sqlite.leftovers import check_hidden, has_leftovers
from ticklake.database.sqlite.wakeups import HintListener, Hints
from ticklake.database.work import Work
from ticklake.errors import TickLakeError

_log = logging.getLogger(__name__)
_OWN = "ticklake.database"
LOCK_SECONDS = 30.0


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class SqliteSchema:
    """The file of one run: one connection for writing (a file has one writer at a time) and one for reading."""

    dialect = "sqlite"

    def __init__(self, path: Path, run_id: str, clock: Callable[[], int] = wall_clock_ms) -> None:
        self.run_id = run_id
        self.path = path
        self.name = str(path)
        self.database = os.path.realpath(path)
        self.count_statements: Callable[[int], None] = ignore_count
        self._clock = clock
        self.hints = Hints(path)
        self._writer = _SharedConnection(path, clock, write=True)
        self._reader = _SharedConnection(path, clock, write=False)
        self._prepared: set[str] = set()
        self._preparing = threading.Lock()

    def now_ms(self) -> int:
        return self._clock()

    def transaction(self, *, durable: bool = True, patient: bool = True) -> SqliteWork:  # noqa: ARG002  no server
        return SqliteWork(self, self._writer, "BEGIN IMMEDIATE", durable=durable)

    autocommit = transaction

    def reading(self) -> SqliteWork:
        return SqliteWork(self, self._reader, "BEGIN", durable=False)

    def check_process(self) -> None:
        self._writer.check_process(self.path)

    def open_transaction(self) -> SqliteTransaction | None:
        work = self._writer.work_of_this_thread()
        return None if work is None else work.transaction

    def check_nesting(self) -> None:
        self._writer.check_nesting()

    @property
    def inherited(self) -> bool:
        return self._writer.inherited

    def flaws(self) -> list[str]:
        with self.reading() as view:
            found = view.sql(_OWN).check_integrity()
            ((page_size,),) = view.execute("PRAGMA page_size", {})
            torn = self.path.stat().st_size % int(page_size)
        return [str(row[0]) for row in found if row[0] != "ok"] + ["the last page is cut off"] * bool(torn)

    def prepare(self, package: str) -> None:
        if package in self._prepared:
            return
        with self._preparing:
            if not self._prepared:
                self._create()
            with self.transaction() as transaction:
                transaction.apply_migrations(package)
            self._prepared.add(package)

    def listen(self, channel: str) -> HintListener:
        return self.hints.listen(channel)

    def pool(self) -> Mapping[str, int]:
        connections = (self._writer, self._reader)
        total, active = sum(shared.open for shared in connections), sum(shared.busy for shared in connections)
        waiting = sum(len(shared.turn.waiters) for shared in connections)
        return {"active": active, "idle": total - active, "total": total, "waiting": waiting}

    def close(self) -> None:
        try:
            self._writer.close()
        finally:
            self._reader.close()
        _log.debug("Closed %s", self.path)

    def _create(self) -> None:
        make_directory(self.path.parent)
        with self.transaction() as transaction:
            own = transaction.sql(_OWN)
            own.create_versions()
            own.create_run()
            own.record_run(run_id=self.run_id)
            ((found,),) = own.read_run()
        if found != self.run_id:
            raise DatabaseUnusable(database=self.path, reason=f"it belongs to run {found!r}, not to {self.run_id!r}")


class SqliteTransaction(Transaction):
    """A transaction on a connection in exclusive use."""

    def __init__(self, schema: SqliteSchema, connection: apsw.Connection, guard: Guard) -> None:
        super().__init__(schema.run_id, "sqlite", schema.database)
        self._connection = connection
        self._guard = guard
        self._hints = schema.hints

    def _execute(self, text: str, values: Mapping[str, Any]) -> list[Row]:
        return self._rows(self._connection.execute, text, values)

    def _execute_many(self, text: str, values: Iterable[Mapping[str, Any]]) -> list[Row]:
        return self._rows(self._connection.executemany, text, values)

    def _count(self, text: str, values: Iterable[Mapping[str, Any]]) -> int:
        """Needs no other statement: the driver asks for the next values after it has executed the statement."""
        changed = 0

        def counted() -> Iterator[Mapping[str, Any]]:
            nonlocal changed
            for one in values:
                yield one
                changed += self._connection.changes()

        self._rows(self._connection.executemany, text, counted())
        return changed

    def _execute_script(self, text: str) -> None:
        self._execute(text, {})

    def notify(self, channel: str) -> None:
        self.after_commit(lambda: self._hints.send(channel), once=(Hints, channel))

    def _is_gone(self) -> bool:
        return self._guard.ended or not self._connection.in_transaction

    def _rows(self, execute: Callable[..., apsw.Cursor], text: str, values: object) -> list[Row]:
        self.check_open()
        try:
            return execute(text, values).fetchall()
        except apsw.Error as error:
            if isinstance(error, apsw.ReadOnlyError) and self._connection.pragma("query_only"):
                raise ReadingOnly(run_id=self.run_id) from error
            raise translated(error, self._connection.filename, LOCK_SECONDS) from error


class SqliteWork(Work[SqliteTransaction]):
    """A transaction on one of the two connections of a file."""

    _drivers = apsw.Error

    def __init__(self, schema: SqliteSchema, shared: _SharedConnection, begin: str, *, durable: bool) -> None:
        super().__init__()
        self._schema = schema
        self._shared = shared
        self._begin_with = begin
        self._durable = durable
        self.transaction: SqliteTransaction | None = None
        self._reference = shared.turn.reference(self)

    def _begin(self) -> SqliteTransaction:
        self._shared.acquire(self, self._reference)
        connection = self._shared.connected()
        if connection.in_transaction:
            connection.execute("ROLLBACK")  # left open by an interrupt
        connection.pragma("query_only", not self._shared.write)  # an earlier transaction may have set it
        # FULL: an accepted message must survive a power cut. A lost claim or ack only causes a redelivery.
        self._shared.synchronize("FULL" if self._durable else "NORMAL")
        self._shared.remember_place()
        connection.execute(self._begin_with)
        self._shared.guard.begin()
        self.transaction = SqliteTransaction(self._schema, connection, self._shared.guard)
        return self.transaction

    def _commit(self) -> None:
        faults.reach("database.commit.before")
        if self.transaction is not None:
            self.transaction.check_open()
            if self.transaction.foreign:
                check_hidden(self._shared.connected(), self._schema.run_id)
        self._shared.guard.may_commit = True
        self._shared.connected().execute("COMMIT")
        self._shared.check_place()
        faults.reach("database.commit.after")

    def _committed(self) -> None:
        if self.transaction is not None:
            self.transaction.committed()

    def _ended(self) -> None:
        if self.transaction is not None:
            self.transaction.ended()

    def _end(self, *, clean: bool) -> None:  # noqa: ARG002  SQLite itself knows the state of its connection
        if self.transaction is not None:
            self.transaction.over = True
        if not self._shared.turn.held(self._reference):
            return
        try:
            self._shared.roll_back()
            if self.transaction is not None:
                if self.transaction.foreign:
                    self._shared.clean()
                self._schema.count_statements(self.transaction.executed)
        finally:
            self._shared.turn.release(self._reference)

    def _translate(self, error: apsw.Error) -> TickLakeError:
        return translated(error, str(self._schema.path), LOCK_SECONDS)


class _Closing:
    """The holder of a connection that is being closed."""


class _SharedConnection(Inheritable):
    """A connection, opened on first use, that one thread at a time can acquire."""

    def __init__(self, path: Path, clock: Callable[[], int], *, write: bool) -> None:
        super().__init__()
        self._path = path
        self._clock = clock
        self.write = write
        self.guard = Guard()
        self._connection: apsw.Connection | None = None
        self._place: Place | None = None
        self._closed = False
        self._synchronous = ""
        this = weakref.ref(self)
        self.turn = Turn(abandoned=lambda: shared.roll_back() if (shared := this()) is not None else None)

    @property
    def open(self) -> bool:
        return self._connection is not None

    @property
    def busy(self) -> bool:
        return self.turn.holder is not None

    def acquire(self, work: SqliteWork, reference: weakref.ref[object]) -> None:
        self.check_process(self._path)
        self.check_nesting()
        work.thread = threading.get_ident()
        if not self.turn.acquire(reference, LOCK_SECONDS):
            raise DatabaseBusy(database=self._path, seconds=LOCK_SECONDS)

    def check_nesting(self) -> None:
        if self.work_of_this_thread() is not None:
            raise NestedTransaction(database=self._path)

    def work_of_this_thread(self) -> SqliteWork | None:
        """Returns the work for which this thread holds the connection."""
        holder = self.turn.holder
        return holder if isinstance(holder, SqliteWork) and holder.thread == threading.get_ident() else None

    def connected(self) -> apsw.Connection:
        if self._closed:
            raise DatabaseClosed(database=self._path)
        if self._connection is None:
            self._synchronous = ""
            if self._place is not None:
                self._place = self._place.first()
                self.check_place()
            self._connection = connect(self._path, self._clock, LOCK_SECONDS, write=self.write)
            self.guard.watch(self._connection)
        return self._connection

    def synchronize(self, level: str) -> None:
        """Sets how the next commits of the acquired connection wait for the disk."""
        if self.write and level != self._synchronous:
            self._synchronous = ""
            self.connected().pragma("synchronous", level)
            self._synchronous = level

    def roll_back(self) -> None:
        """Rolls back an open transaction. Closes the connection if that fails."""
        if self._connection is None or not self._connection.in_transaction:
            return
        try:
            self._connection.execute("ROLLBACK")
        except apsw.Error as error:
            _log.debug("Cannot roll back, closing %s: %s", self._path, error)
            self._drop(self._connection, force=True)

    def clean(self) -> None:
        """Closes the connection if the next transaction would see what foreign statements have left in it."""
        if self._connection is not None and has_leftovers(self._connection):
            self._disconnect()

    def remember_place(self) -> None:
        """Records the open files before a transaction. They may be moved while it waits for its lock."""
        if self._place is None or not self._place.complete:
            self._place = Place.of(self._path, self.connected(), self._place)

    def check_place(self) -> None:
        """Raises `DatabaseMoved` if the files were moved, so that writes would be lost."""
        if self._place is not None and (lost := self._place.lost()) is not None:
            raise DatabaseMoved(database=self._path, reason=lost)

    def close(self) -> None:
        closing = _Closing()
        reference = self.turn.reference(closing)
        if self.inherited:
            return
        try:
            try:
                self.turn.acquire(reference, LOCK_SECONDS)
                self._closed = True
                self._disconnect()
            finally:
                self.turn.release(reference)
        finally:
            self.turn.release(reference)  # again, in case the first call was interrupted

    def _disconnect(self) -> None:
        if self._connection is None:
            return
        if has_moved(self._connection) or (self._place is not None and self._place.lost()):
            # A checkpoint would write to the moved file, and could remove the -wal of another database.
            self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        self._drop(self._connection)

    def _drop(self, connection: apsw.Connection, *, force: bool = False) -> None:
        try:
            connection.close(force)
        finally:
            self._connection = None

    def _before_fork(self, fork: Fork) -> None:
        """Closes the connection. SQLite records its locks per process; a child inherits the record but not the locks,
        so its own connections would be unprotected. The next transaction opens the connection again.
        """
        if self.work_of_this_thread() is None and self.turn.acquire(self.turn.reference(fork), fork.seconds):
            self._disconnect()

    def _after_fork(self, fork: Fork) -> None:
        self.turn.revoke(fork)

    def _disown(self, fork: Fork) -> None:
        if self._connection is not None or self.turn.holder not in (None, fork):
            forked_files.forbid(self._path, self._place)
            if self.work_of_this_thread() is None:
                forked_files.forbid_all(self._path)
            leak(self._connection)
            self._connection = None
