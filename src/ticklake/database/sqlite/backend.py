"""SQLite: a directory with one file a run. WAL; every write transaction takes the write lock at its beginning."""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import apsw

from ticklake import faults
from ticklake.database.errors import (
    DatabaseBusy,
    DatabaseClosed,
    DatabaseDamaged,
    DatabaseInUseAtFork,
    DatabaseLocked,
    DatabaseMoved,
    DatabaseUnusable,
    NestedTransaction,
    ReadingOnly,
    RunNotInDatabase,
)
from ticklake.database.fork import Fork, Inheritable, keep_for_ever
from ticklake.database.names import schema_name
from ticklake.database.outages import Fault, in_our_words, sqlite_fault
from ticklake.database.schema import Row, Transaction, uncounted
from ticklake.database.sqlite import forked_files as barred
from ticklake.database.sqlite.commit_guard import Guard
from ticklake.database.sqlite.connecting import connect
from ticklake.database.sqlite.file_identity import Place, has_moved, make_directory
from ticklake.database.sqlite.wakeups import HintListener, Hints
from ticklake.database.waiting import Turn
from ticklake.database.work import Work
from ticklake.errors import TickLakeError

_log = logging.getLogger(__name__)
_OWN = "ticklake.database"
SUFFIX = ".sqlite"
LOCK_SECONDS = 30.0


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class SqliteBackend(Inheritable):
    """The files of a directory."""

    def __init__(self, directory: Path, clock: Callable[[], int] = wall_clock_ms) -> None:
        super().__init__()
        self._directory = directory.absolute()
        self._clock = clock
        self._lock = threading.Lock()
        self._schemas: dict[str, SqliteSchema] = {}
        self._left_out: set[Path] = set()
        self._closed = False

    def schema(self, run_id: str, *, create: bool = True) -> SqliteSchema:
        path = self._directory / (schema_name(run_id) + SUFFIX)
        self.check_process(self._directory)
        with self._lock:
            if self._closed:
                raise DatabaseClosed(database=self._directory)
            if run_id not in self._schemas:
                if not create and not path.exists():
                    raise RunNotInDatabase(run_id=run_id, database=f"sqlite:///{self._directory}")
                self._schemas[run_id] = SqliteSchema(path, run_id, self._clock)
            return self._schemas[run_id]

    def runs(self) -> list[str]:
        """Leaves out, with one warning, damaged files, and copies: files with another name than that of their run."""
        files = self._directory.iterdir() if self._directory.exists() else ()  # glob would hide a directory's error
        found: list[str] = []
        for path in sorted(file for file in files if file.match(f"SIM_*{SUFFIX}")):
            try:
                ids = _run_ids(path)
            except DatabaseDamaged as error:
                self._leave_out(path, str(error))
                continue
            found += [run_id for run_id in ids if schema_name(run_id) == path.stem]
            if ids and (name := schema_name(ids[0])) != path.stem:
                self._leave_out(path, f"{path} has run {ids[0]!r} under another name than {name}{SUFFIX}")
        return sorted(found)

    def _leave_out(self, path: Path, reason: str) -> None:
        if path not in self._left_out:
            _log.warning("%s", reason)
        self._left_out.add(path)

    def close(self) -> None:
        if self.inherited:
            return
        with self._lock:
            self._closed = True
        with ExitStack() as schemas:  # each of them, also if one is interrupted
            for schema in self._schemas.values():
                schemas.callback(schema.close)

    def _disown(self, fork: Fork) -> None: ...


class SqliteSchema:
    """One run's file: one connection that writes (a file has one writer at a time) and one that reads meanwhile."""

    dialect = "sqlite"

    def __init__(self, path: Path, run_id: str, clock: Callable[[], int] = wall_clock_ms) -> None:
        self.run_id = run_id
        self.path = path
        self.name = str(path)
        self.database = os.path.realpath(path)
        self.count_statements: Callable[[int], None] = uncounted
        self._clock = clock
        self.hints = Hints(path)
        self._writer = _Seat(path, clock, write=True)
        self._reader = _Seat(path, clock, write=False)
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
        seats = (self._writer, self._reader)
        total, active = sum(seat.open for seat in seats), sum(seat.busy for seat in seats)
        waiting = sum(len(seat.turn.waiters) for seat in seats)
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
    """A transaction on a connection that nobody else uses meanwhile."""

    def __init__(self, schema: SqliteSchema, connection: apsw.Connection, guard: Guard) -> None:
        super().__init__(schema.run_id, "sqlite", schema.database)
        self._connection = connection
        self._guard = guard
        self._hints = schema.hints

    def _execute(self, text: str, values: Mapping[str, Any]) -> list[Row]:
        return self._rows(self._connection.execute, text, values)

    def _execute_many(self, text: str, values: Iterable[Mapping[str, Any]]) -> list[Row]:
        return self._rows(self._connection.executemany, text, values)

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
            raise _in_our_words(error, self._connection.filename) from error


class SqliteWork(Work[SqliteTransaction]):
    """A transaction on one of the two connections of a file."""

    _drivers = apsw.Error

    def __init__(self, schema: SqliteSchema, seat: _Seat, begin: str, *, durable: bool) -> None:
        super().__init__()
        self._schema = schema
        self._seat = seat
        self._begin_with = begin
        self._durable = durable
        self._transaction: SqliteTransaction | None = None
        self._reference = seat.turn.reference(self)

    def _begin(self) -> SqliteTransaction:
        self._seat.take(self, self._reference)
        connection = self._seat.connected()
        if connection.in_transaction:
            connection.execute("ROLLBACK")  # an interrupt has left it
        connection.pragma("query_only", not self._seat.write)  # the work before may have set it
        # FULL: a sender who was told "accepted" may lose power a moment later. A claim or ack that is lost only means
        # a redelivery.
        self._seat.synchronize("FULL" if self._durable else "NORMAL")
        self._seat.remember_place()
        connection.execute(self._begin_with)
        self._seat.guard.begin()
        self._transaction = SqliteTransaction(self._schema, connection, self._seat.guard)
        return self._transaction

    def _commit(self) -> None:
        faults.reach("database.commit.before")
        if self._transaction is not None:
            self._transaction.check_open()
        self._seat.guard.may_commit = True
        self._seat.connected().execute("COMMIT")
        self._seat.check_place()
        faults.reach("database.commit.after")

    def _committed(self) -> None:
        if self._transaction is not None:
            self._transaction.committed()

    def _end(self, *, clean: bool) -> None:  # noqa: ARG002  SQLite itself knows the state of its connection
        if self._transaction is not None:
            self._transaction.over = True
        if not self._seat.turn.held(self._reference):
            return
        try:
            self._seat.roll_back()
            if self._transaction is not None:
                self._schema.count_statements(self._transaction.executed)
        finally:
            self._seat.turn.give_back(self._reference)

    def _in_our_words(self, error: apsw.Error) -> TickLakeError:
        return _in_our_words(error, str(self._schema.path))


class _Closing:
    """Takes a seat to close it."""


class _Seat(Inheritable):
    """One connection, opened on first use, that threads take in turn."""

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
        self.turn = Turn(abandoned=lambda: seat.roll_back() if (seat := this()) is not None else None)

    @property
    def open(self) -> bool:
        return self._connection is not None

    @property
    def busy(self) -> bool:
        return self.turn.holder is not None

    def take(self, work: SqliteWork, reference: weakref.ref[object]) -> None:
        self.check_process(self._path)
        self.check_nesting()
        work.thread = threading.get_ident()
        if not self.turn.take(reference, LOCK_SECONDS):
            raise DatabaseBusy(database=self._path, seconds=LOCK_SECONDS)

    def check_nesting(self) -> None:
        if self._is_mine():
            raise NestedTransaction(database=self._path)

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
        """How the next commits of the connection that was taken wait for the disk."""
        if self.write and level != self._synchronous:
            self._synchronous = ""
            self.connected().pragma("synchronous", level)
            self._synchronous = level

    def roll_back(self) -> None:
        """A connection that cannot even do that is closed."""
        if self._connection is None or not self._connection.in_transaction:
            return
        try:
            self._connection.execute("ROLLBACK")
        except apsw.Error as error:
            _log.debug("Cannot roll back, closing %s: %s", self._path, error)
            self._drop(self._connection, force=True)

    def remember_place(self) -> None:
        """Before a transaction, which may wait at its beginning: its files may be moved meanwhile."""
        if self._place is None or not self._place.complete:
            self._place = Place.of(self._path, self.connected(), self._place)

    def check_place(self) -> None:
        """Raises `DatabaseMoved` if what was written is where nobody will look for it."""
        if self._place is not None and (lost := self._place.lost()) is not None:
            raise DatabaseMoved(database=self._path, reason=lost)

    def close(self) -> None:
        closing = _Closing()
        reference = self.turn.reference(closing)
        if self.inherited:
            return
        try:
            try:
                self.turn.take(reference, LOCK_SECONDS)
                self._closed = True
                self._disconnect()
            finally:
                self.turn.give_back(reference)
        finally:
            self.turn.give_back(reference)  # again, in case that the first was interrupted

    def _disconnect(self) -> None:
        if self._connection is None:
            return
        if has_moved(self._connection) or (self._place is not None and self._place.lost()):
            # A checkpoint would go where nobody looks, and the -wal that it removes may be another file's.
            self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        self._drop(self._connection)

    def _drop(self, connection: apsw.Connection, *, force: bool = False) -> None:
        try:
            connection.close(force)
        finally:
            self._connection = None

    def _before_fork(self, fork: Fork) -> None:
        """SQLite remembers, for the whole process, which locks it has. A child has the memory, and not the locks: its
        own connections would go unprotected. So there is nothing open at a fork; the next transaction opens it again.
        """
        if not self._is_mine() and self.turn.take(self.turn.reference(fork), fork.seconds):
            self._disconnect()

    def _after_fork(self, fork: Fork) -> None:
        self.turn.take_from(fork)

    def _disown(self, fork: Fork) -> None:
        if self._connection is not None or self.turn.holder not in (None, fork):
            barred.bar(self._path, self._place)
            if not self._is_mine():
                barred.bar_all(self._path)
            keep_for_ever(self._connection)
            self._connection = None

    def _is_mine(self) -> bool:
        """Whether this thread has it."""
        holder = self.turn.holder
        return isinstance(holder, SqliteWork) and holder.thread == threading.get_ident()


def _run_ids(path: Path) -> list[str]:
    """The run of a file; none where the file is not one of ours or is being made."""
    schema = SqliteSchema(path, "")
    try:
        with schema.reading() as view:
            return [row[0] for row in view.sql(_OWN).read_run()]
    except (DatabaseDamaged, DatabaseInUseAtFork):
        raise
    except TickLakeError:
        return []
    finally:
        schema.close()


def _in_our_words(error: apsw.Error, path: str) -> TickLakeError:
    """The driver's errors as ours."""
    fault = sqlite_fault(getattr(error, "result", 0))
    if fault is Fault.LOCKED:
        return DatabaseLocked(database=path, seconds=LOCK_SECONDS)
    return in_our_words(fault, path, str(error) or type(error).__name__)
