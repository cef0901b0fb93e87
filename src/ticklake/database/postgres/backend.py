"""PostgreSQL: one schema per run, a pool of connections, LISTEN and NOTIFY."""

from __future__ import annotations

import json
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql as compose

from ticklake import faults
from ticklake.database.endings import split
from ticklake.database.error_kinds import Fault, is_refusal, postgres_fault, translate
from ticklake.database.errors import (
    DatabaseClosed,
    DatabaseUnusable,
    NestedTransaction,
    PoolExhausted,
    ReadingOnly,
    RunNotInDatabase,
)
from ticklake.database.fork import Fork, Inheritable
from ticklake.database.names import is_name_of, schema_name
from ticklake.database.postgres.connection import OWN as _OWN
from ticklake.database.postgres.connection import Connection, own
from ticklake.database.postgres.lock_waits import report_lock_waits
from ticklake.database.postgres.pool import Pool
from ticklake.database.postgres.wakeups import PostgresListener
from ticklake.database.schema import Row, Transaction, ignore_count
from ticklake.database.url import split_password
from ticklake.database.work import Work
from ticklake.errors import TickLakeError

_log = logging.getLogger(__name__)
CONNECT_SECONDS = 10
POOL_SECONDS = 30.0
RETRY_SECONDS = 0.2
BEGIN = "BEGIN TRANSACTION ISOLATION LEVEL READ COMMITTED"
"""Our statements rely on this level, so it is set explicitly and not left to the default of a server or role."""
READING = "BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"
READ_ONLY = "25006"
_OPTIONS: dict[str, Any] = {
    "autocommit": True,
    "connect_timeout": CONNECT_SECONDS,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}


class PostgresBackend(Inheritable):
    """A server's database."""

    def __init__(
        self, url: str, *, max_pool_size: int = 10, min_idle: int = 2, connections: Pool[Connection] | None = None
    ) -> None:
        """`connections` is the pool of another backend of the same server, which closes it."""
        super().__init__()
        self._url = url
        self.name = split_password(url)[0]
        self._lock = threading.Lock()
        self._schemas: dict[str, PostgresSchema] = {}
        self._closed = False
        self._reached = False
        self._skipped: set[str] = set()
        self.damaged: list[str] = []
        self._owns_connections = connections is None
        keep = min(min_idle, max_pool_size)
        self.connections = connections or Pool(self._connect, Connection.is_usable, size=max_pool_size, keep=keep)

    def schema(self, run_id: str, *, create: bool = True) -> PostgresSchema:
        name = schema_name(run_id)
        self.check_process(self.name)
        with self._lock:
            if self._closed:
                raise DatabaseClosed(database=self.name)
            if run_id not in self._schemas:
                if not create and not self._query("find_schema", schema=name):
                    raise RunNotInDatabase(run_id=run_id, database=self.name)
                self._schemas[run_id] = PostgresSchema(self, name, run_id)
            return self._schemas[run_id]

    def runs(self) -> list[str]:
        """Lists the runs. Skips, with one warning, schemas that do not match their run: renamed or foreign ones."""
        found = []
        for run_id, name in self._query("list_runs"):
            if is_name_of(name, run_id):
                found.append(run_id)
            elif name not in self._skipped:
                self._skipped.add(name)
                _log.warning("Schema %s of %s has another run in its comment: %r", name, self.name, run_id)
        return found

    def stamps(self, run_ids: Sequence[str]) -> dict[str, object]:
        """Reads the server's statistics: rows written to each schema. A session reports them within ten seconds."""
        names = {schema_name(run_id): run_id for run_id in run_ids}
        return {names[name]: count for name, count in self._query("stamps", schemas=json.dumps(list(names)))}

    def drop(self, run_id: str) -> bool:
        """Drops the schema in one transaction, which waits for transactions that use its tables."""
        schema = PostgresSchema(self, schema_name(run_id), run_id)
        with self._lock:
            self._schemas.pop(run_id, None)
        return schema.drop()

    def branch(self) -> PostgresBackend:
        return PostgresBackend(self._url, connections=self.connections)

    def close(self) -> None:
        if self.inherited:
            return
        self._closed = True
        if not self._owns_connections:
            return
        self.connections.close()

    def connect(self) -> Connection:
        """Opens a separate connection, outside the pool."""
        with self.translated():
            return self._connect()

    def acquire(self, mine: weakref.ref[object], *, patient: bool = True) -> Connection:
        """Acquires a connection of the pool. During an outage, retries for as long as it would wait for a full pool.

        Not `patient`: tries once, and also checks whether the server was restarted.
        """
        self.check_process(self.name)
        end = time.monotonic() + POOL_SECONDS
        while True:
            if self._closed:
                raise DatabaseClosed(database=self.name)
            try:
                connection = self.connections.acquire(mine, end - time.monotonic())
                if connection is not None and not patient:
                    connection.identify_server()
            except psycopg.OperationalError as error:
                if not patient or not self._reached or time.monotonic() > end:
                    raise self.translate(error) from error
                _log.debug("Retrying to connect to %s: %s", self.name, error)
                time.sleep(RETRY_SECONDS)
            else:
                if connection is None:
                    reason = f"all {self.connections.size} were in use for {POOL_SECONDS:g} seconds"
                    raise PoolExhausted(database=self.name, reason=reason)
                self._reached = True
                return connection

    def pool(self) -> Mapping[str, int]:
        active, idle = self.connections.active, self.connections.idle
        return {"active": active, "idle": idle, "total": active + idle, "waiting": len(self.connections.waiters)}

    def _connect(self) -> Connection:
        connection = Connection.connect(self._url, **_OPTIONS)
        try:
            connection.identify_server()
        except BaseException:
            connection.close()
            raise
        return connection

    def _query(self, statement: str, **values: str) -> list[Row]:
        with PostgresWork(self) as transaction:
            return transaction._execute(own(statement).decode(), values)

    @contextmanager
    def translated(self, connection: Connection | None = None) -> Iterator[None]:
        """Translates errors of the driver."""
        try:
            yield
        except psycopg.Error as error:
            raise self.translate(error, connection) from error

    def translate(self, error: psycopg.Error, connection: Connection | None = None) -> TickLakeError:
        """Translates an error of the driver. `connection` is where it happened, if there was one."""
        reason = " ".join(str(error).split())
        lost = isinstance(error, psycopg.OperationalError) if connection is None else connection.broken
        if connection is None and lost and is_refusal(reason):
            return translate(Fault.REFUSED, self.name, reason)
        return translate(postgres_fault(error.sqlstate, lost=lost), self.name, reason)

    def _disown(self, fork: Fork) -> None: ...


class PostgresSchema:
    """The schema of one run."""

    dialect = "postgres"

    def __init__(self, backend: PostgresBackend, name: str, run_id: str) -> None:
        self.run_id = run_id
        self.name = name
        self.database = backend.name
        self.count_statements: Callable[[int], None] = ignore_count
        self._backend = backend
        self._prepared: set[str] = set()
        self._preparing = threading.Lock()

    def transaction(self, *, durable: bool = True, patient: bool = True) -> PostgresWork:
        return PostgresWork(self._backend, self, durable=durable, begin=BEGIN, patient=patient)

    def autocommit(self, *, durable: bool = True) -> PostgresWork:
        return PostgresWork(self._backend, self, durable=durable)

    def reading(self) -> PostgresWork:
        return PostgresWork(self._backend, self, durable=False, begin=READING)

    def check_process(self) -> None:
        self._backend.check_process(self._backend.name)

    def open_transaction(self) -> PostgresTransaction | None:
        for user in self._backend.connections.users():
            if isinstance(user, PostgresWork) and user.is_mine_in(self) and user.transaction is not None:
                return user.transaction
        return None

    def check_nesting(self) -> None:
        """Another connection would be used, and wait for a lock of this thread for ever.

        If many threads do this, all also wait for a connection of the others.
        """
        if self.open_transaction() is not None:
            raise NestedTransaction(database=self.database)

    @property
    def inherited(self) -> bool:
        return self._backend.inherited

    def now_ms(self) -> int:
        with self.autocommit(durable=False) as transaction:
            ((now,),) = transaction.sql(_OWN).read_clock()
        return int(now)

    def prepare(self, package: str) -> None:
        if package in self._prepared:
            return
        with self._preparing:
            if not self._prepared:
                self._create()
            with self._locked() as transaction:
                transaction.apply_migrations(package)
            self._prepared.add(package)

    def flaws(self) -> list[str]:
        return []

    def listen(self, channel: str) -> PostgresListener:
        return PostgresListener(self._backend, self.name, channel)

    def pool(self) -> Mapping[str, int]:
        return self._backend.pool()

    @contextmanager
    def _locked(self) -> Iterator[PostgresTransaction]:
        """Locks the tables of this run against other creations and upgrades."""
        with self.transaction() as transaction, report_lock_waits(self._backend.connect, transaction):
            transaction.sql(_OWN).lock_schema(schema=self.name)
            yield transaction

    def _create(self) -> None:
        with self._locked() as transaction:
            own = transaction.sql(_OWN)
            if not own.find_schema(schema=self.name):
                self._create_schema(transaction)
            ((found,),) = own.find_schema(schema=self.name)
        if found != self.run_id:
            raise DatabaseUnusable(database=self._backend.name, reason=f"schema {self.name} belongs to run {found!r}")

    def drop(self) -> bool:
        """Removes the schema. Returns whether there was one."""
        with self._locked() as transaction:
            found = transaction.sql(_OWN).find_schema(schema=self.name)
            if found and found[0][0] != self.run_id:
                reason = f"schema {self.name} belongs to run {found[0][0]!r}"
                raise DatabaseUnusable(database=self._backend.name, reason=reason)
            if found:
                name = compose.Identifier(self.name)
                transaction.execute_composed(compose.SQL("DROP SCHEMA {} CASCADE").format(name))
        return bool(found)

    def _create_schema(self, transaction: PostgresTransaction) -> None:
        name = compose.Identifier(self.name)
        transaction.execute_composed(compose.SQL("CREATE SCHEMA {}").format(name))
        comment = compose.SQL("COMMENT ON SCHEMA {} IS {}").format(name, compose.Literal(self.run_id))
        transaction.execute_composed(comment)
        own = transaction.sql(_OWN)
        own.create_versions()
        own.clock()
        own.clock_ms()


class PostgresTransaction(Transaction):
    """A transaction, or single statements, on a connection in exclusive use."""

    def __init__(self, run_id: str, connection: Connection, backend: PostgresBackend, begun_with: str) -> None:
        super().__init__(run_id, "postgres", backend.name, connection.life)
        self._connection = connection
        self._begun_with = begun_with
        self._backend = backend

    def _execute(self, text: str, values: Mapping[str, Any]) -> list[Row]:
        self.check_open()
        try:
            cursor = self._connection.statements.execute(text.encode(), values)
            return cursor.fetchall() if _has_rows(cursor) else []
        except psycopg.Error as error:
            raise self._translate(error) from error

    def _count(self, text: str, values: Iterable[Mapping[str, Any]]) -> int:
        self.check_open()
        try:
            return sum(self._connection.statements.execute(text.encode(), one).rowcount for one in values)
        except psycopg.Error as error:
            raise self._translate(error) from error

    def _execute_many(self, text: str, values: Iterable[Mapping[str, Any]]) -> list[Row]:
        return [row for one in values for row in self._execute(text, one)]

    def _execute_script(self, text: str) -> None:
        """Sends each statement separately, as a binary cursor requires. So none of them can end the transaction."""
        self.check_open()
        try:
            for statement in split(text):
                self._connection.statements.execute(statement.text.encode(), prepare=False)
        except psycopg.Error as error:
            raise self._translate(error) from error

    def execute_composed(self, statement: compose.Composed) -> None:
        self._connection.execute(statement)

    def notify(self, channel: str) -> None:
        self.sql(_OWN).notify(channel=channel)

    def _is_gone(self) -> bool:
        idle = self._connection.pgconn.transaction_status == psycopg.pq.TransactionStatus.IDLE
        return idle and bool(self._begun_with)

    def _translate(self, error: psycopg.Error) -> TickLakeError:
        if error.sqlstate == READ_ONLY and self._begun_with == READING:
            return ReadingOnly(run_id=self.run_id)
        self._connection.read_only = error.sqlstate == READ_ONLY
        return self._backend.translate(error, self._connection)


class PostgresWork(Work[PostgresTransaction]):
    """A transaction, or statements that commit separately, on a connection of the pool."""

    _drivers = psycopg.Error

    def __init__(
        self,
        backend: PostgresBackend,
        schema: PostgresSchema | None = None,
        *,
        durable: bool = True,
        begin: str = "",
        patient: bool = True,
    ) -> None:
        super().__init__()
        self._backend = backend
        self._schema = schema
        self._durable = durable
        self._begin_with = begin
        self._patient = patient
        self._reference = backend.connections.reference(self)
        self.transaction: PostgresTransaction | None = None

    def is_mine_in(self, schema: PostgresSchema) -> bool:
        """Returns whether this is a transaction of the current thread that can write to a schema."""
        mine = self._begin_with == BEGIN and self.thread == threading.get_ident()
        return mine and self._schema is not None and self._schema.name == schema.name

    def _begin(self) -> PostgresTransaction:
        self.thread = threading.get_ident()
        connection = self._backend.acquire(self._reference, patient=self._patient)
        if self._schema is not None and not connection.pooler:
            connection.enter(self._schema.name, self._durable)
        if connection.pooler and not self._begin_with:
            self._begin_with = BEGIN  # otherwise each statement could be in another session
        if self._begin_with:
            connection.execute(self._begin_with.encode())
        if self._schema is not None and connection.pooler:
            connection.enter(self._schema.name, self._durable)
        run_id = "" if self._schema is None else self._schema.run_id
        self.transaction = PostgresTransaction(run_id, connection, self._backend, self._begin_with)
        return self.transaction

    def _commit(self) -> None:
        connection = self._connection
        if self._begin_with and connection is not None:
            faults.reach("database.commit.before")
            if self.transaction is not None:
                self.transaction.check_open()
            if self._commit_on(connection) != "COMMIT":
                reason = "a statement had failed, so the transaction was rolled back"
                raise DatabaseUnusable(database=self._backend.name, reason=reason)
            faults.reach("database.commit.after")

    def _commit_on(self, connection: Connection) -> str | None:
        failed = connection.pgconn.transaction_status == psycopg.pq.TransactionStatus.INERROR
        if self._schema is None or self.transaction is None or not self.transaction.foreign or failed:
            return connection.execute(b"COMMIT").statusmessage
        return connection.clean_and_commit(self._schema.name, self._durable)

    def _committed(self) -> None:
        if self.transaction is not None:
            self.transaction.committed()

    def _ended(self) -> None:
        if self.transaction is not None:
            self.transaction.ended()

    def _end(self, *, clean: bool) -> None:
        if self.transaction is not None:
            self.transaction.over = True
        connection = self._connection
        try:
            clean = clean and not (self.transaction is not None and self.transaction.prepares)
            if connection is not None and (not clean or connection.read_only or not connection.roll_back()):
                self._backend.connections.discard(self._reference)
            if connection is not None and self._schema is not None and self.transaction is not None:
                self._schema.count_statements(self.transaction.executed)
        finally:
            self._backend.connections.release(self._reference)

    def _translate(self, error: psycopg.Error) -> TickLakeError:
        return self._backend.translate(error, self._connection)

    @property
    def _connection(self) -> Connection | None:
        """The acquired connection; None before and after."""
        return self._backend.connections.held(self._reference)


def _has_rows(cursor: psycopg.Cursor[Row]) -> bool:
    """Returns whether a result has rows. `cursor.description` is slower, because it describes every column."""
    return cursor.pgresult is not None and cursor.pgresult.status == psycopg.pq.ExecStatus.TUPLES_OK
