"""PostgreSQL: one schema a run, a pool of connections, LISTEN and NOTIFY."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any

import psycopg
import psycopg_pool
from psycopg import sql as compose

from ticklake import faults
from ticklake.database.names import schema_name
from ticklake.database.outages import in_our_words, postgres_fault
from ticklake.database.readiness import readable
from ticklake.database.schema import Row, Transaction, uncounted
from ticklake.database.statements import statements
from ticklake.database.url import split_password
from ticklake.errors import (
    DatabaseClosed,
    DatabaseUnavailable,
    DatabaseUnusable,
    RunNotInDatabase,
    TickLakeError,
)

_log = logging.getLogger(__name__)
_OWN = "ticklake.database"
CONNECT_SECONDS = 10
POOL_SECONDS = 30.0
ASK_SECONDS = 3.0
SAFETY_SECONDS = 30.0
RETRY_SECONDS = 0.2
_OPTIONS: dict[str, Any] = {
    "autocommit": True,
    "connect_timeout": CONNECT_SECONDS,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}


class _Connection(psycopg.Connection[Row]):
    """A connection that knows which schema it is in and whether its commits wait for the disk."""

    place: tuple[str, bool] | None = None

    @cached_property
    def statements(self) -> psycopg.Cursor[Row]:
        """One for all statements: it remembers how their values are written and read, a fifth of the work."""
        return self.cursor(binary=True)

    def enter(self, schema: str, durable: bool) -> None:
        if self.place != (schema, durable):
            values = {"search_path": f'"{schema}"', "commit": "on" if durable else "off"}
            self.execute(_own("enter"), values)
            self.place = (schema, durable)


class _Idle(deque[_Connection]):
    """Idle connections. The one that came back last goes out first: its server process is warm, its schema entered."""

    append = deque.appendleft


class _Pool(psycopg_pool.ConnectionPool[_Connection]):
    """A pool that is a stack: the library takes its connections in turn, each of them cold."""

    _pool: deque[_Connection]

    def open(self, wait: bool = False, timeout: float = POOL_SECONDS) -> None:
        self._pool = _Idle()
        super().open(wait, timeout)


class PostgresBackend:
    """A server's database."""

    def __init__(self, url: str, *, max_pool_size: int = 10, min_idle: int = 2) -> None:
        self._url = url
        self.name = split_password(url)[0]
        self._lock = threading.Lock()
        self._schemas: dict[str, PostgresSchema] = {}
        self._closed = False
        self._opened = False
        self._opening = threading.Lock()
        self._pool = _Pool(
            url,
            connection_class=_Connection,
            kwargs=_OPTIONS,
            min_size=min(min_idle, max_pool_size),
            max_size=max_pool_size,
            reconnect_timeout=2.0,  # begin again with short pauses rather than let them grow
            open=False,
        )

    def schema(self, run_id: str, *, create: bool = True) -> PostgresSchema:
        name = schema_name(run_id)
        with self._lock:
            if self._closed:
                raise DatabaseClosed(database=self.name)
            if run_id not in self._schemas:
                if not create and not self._query("find_schema", schema=name):
                    raise RunNotInDatabase(run_id=run_id, database=self.name)
                self._schemas[run_id] = PostgresSchema(self, name, run_id)
            return self._schemas[run_id]

    def runs(self) -> list[str]:
        return [row[0] for row in self._query("list_runs")]

    def close(self) -> None:
        with self._lock:
            self._closed = True
        if not self._pool.closed:
            self._pool.close()

    def connect(self) -> _Connection:
        """A connection of one's own, outside the pool."""
        with self.translated():
            return _Connection.connect(self._url, **_OPTIONS)

    @contextmanager
    def borrowed(self) -> Iterator[_Connection]:
        """A connection of the pool; one that breaks is not given back."""
        self._open_pool()
        with self.translated():
            connection = self._take()
        try:
            with self.translated(connection):
                yield connection
        finally:
            self._pool.putconn(connection)

    def pool(self) -> Mapping[str, int]:
        stats = self._pool.get_stats()
        total, idle = stats.get("pool_size", 0), stats.get("pool_available", 0)
        return {"active": total - idle, "idle": idle, "total": total, "waiting": stats.get("requests_waiting", 0)}

    def _take(self) -> _Connection:
        """Asks again and again: a pool that has given up connecting lets those wait who have asked before."""
        end = time.monotonic() + POOL_SECONDS
        while True:
            try:
                return self._pool.getconn(ASK_SECONDS)
            except psycopg_pool.PoolTimeout:
                if time.monotonic() > end:
                    raise psycopg_pool.PoolTimeout(f"no connection for {POOL_SECONDS:g} seconds") from None

    def _query(self, statement: str, **values: str) -> list[Row]:
        with self.borrowed() as connection:
            return connection.execute(_own(statement), values).fetchall()

    def _open_pool(self) -> None:
        if self._closed:
            raise DatabaseClosed(database=self.name)
        if self._opened:
            return
        with self._opening:
            self.connect().close()  # says what is wrong (no such host, wrong password), which a pool does not
            self._pool.open()
            self._opened = True

    @contextmanager
    def translated(self, connection: _Connection | None = None) -> Iterator[None]:
        """The driver's errors in our words."""
        try:
            yield
        except (psycopg.Error, psycopg_pool.PoolClosed) as error:
            raise self.in_our_words(error, connection) from error

    def in_our_words(self, error: Exception, connection: _Connection | None = None) -> TickLakeError:
        """`connection`: on which it happened; none if there was none to be had."""
        reason = " ".join(str(error).split())
        if isinstance(error, psycopg_pool.PoolClosed):
            return DatabaseClosed(database=self.name)
        lost = isinstance(error, psycopg.OperationalError) if connection is None else connection.broken
        return in_our_words(postgres_fault(getattr(error, "sqlstate", None), lost=lost), self.name, reason)


class PostgresSchema:
    """One run's schema."""

    dialect = "postgres"

    def __init__(self, backend: PostgresBackend, name: str, run_id: str) -> None:
        self.run_id = run_id
        self.name = name
        self.count_statements: Callable[[int], None] = uncounted
        self._backend = backend
        self._prepared: set[str] = set()
        self._preparing = threading.Lock()

    @contextmanager
    def transaction(self, *, durable: bool = True) -> Iterator[PostgresTransaction]:
        with self._entered(durable) as transaction:
            with transaction.connection.transaction():
                yield transaction
                faults.reach("database.commit.before")
            faults.reach("database.commit.after")
        transaction.committed()

    @contextmanager
    def autocommit(self, *, durable: bool = True) -> Iterator[Transaction]:
        with self._entered(durable) as transaction:
            yield transaction
        transaction.committed()

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        with self._entered(durable=False) as transaction, transaction.connection.transaction():
            transaction.execute_script("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield transaction

    def now_ms(self) -> int:
        with self._entered(durable=False) as transaction:
            ((now,),) = transaction.sql(_OWN).read_clock()
        return int(now)

    def prepare(self, package: str) -> None:
        if package in self._prepared:
            return
        with self._preparing:
            if not self._prepared:
                self._create()
            with self.transaction() as transaction:
                transaction.sql(_OWN).lock_schema(schema=self.name)
                transaction.apply_migrations(package)
            self._prepared.add(package)

    def flaws(self) -> list[str]:
        return []

    def listen(self, channel: str) -> PostgresListener:
        return PostgresListener(self._backend, self.name, channel)

    def pool(self) -> Mapping[str, int]:
        return self._backend.pool()

    def _create(self) -> None:
        with self.transaction() as transaction:
            own = transaction.sql(_OWN)
            own.lock_schema(schema=self.name)
            if not own.find_schema(schema=self.name):
                self._create_schema(transaction)
            ((found,),) = own.find_schema(schema=self.name)
        if found != self.run_id:
            raise DatabaseUnusable(database=self._backend.name, reason=f"schema {self.name} is of run {found!r}")

    def _create_schema(self, transaction: PostgresTransaction) -> None:
        name = compose.Identifier(self.name)
        transaction.execute_composed(compose.SQL("CREATE SCHEMA {}").format(name))
        comment = compose.SQL("COMMENT ON SCHEMA {} IS {}").format(name, compose.Literal(self.run_id))
        transaction.execute_composed(comment)
        own = transaction.sql(_OWN)
        own.create_versions()
        own.clock()
        own.clock_ms()

    @contextmanager
    def _entered(self, durable: bool) -> Iterator[PostgresTransaction]:
        with self._backend.borrowed() as connection:
            connection.enter(self.name, durable)
            transaction = PostgresTransaction(self.run_id, connection, self._backend)
            try:
                yield transaction
            finally:
                self.count_statements(transaction.executed)


class PostgresTransaction(Transaction):
    """A transaction, or single statements, on a connection that nobody else uses meanwhile."""

    def __init__(self, run_id: str, connection: _Connection, backend: PostgresBackend) -> None:
        super().__init__(run_id, "postgres")
        self.connection = connection
        self._backend = backend

    def execute(self, text: str, values: Mapping[str, Any]) -> list[Row]:
        try:
            cursor = self.connection.statements.execute(text.encode(), values)
            return cursor.fetchall() if _has_rows(cursor) else []
        except psycopg.Error as error:
            raise self._backend.in_our_words(error, self.connection) from error

    def execute_many(self, text: str, values: Iterable[Mapping[str, Any]]) -> list[Row]:
        return [row for one in values for row in self.execute(text, one)]

    def execute_script(self, text: str) -> None:
        with self._backend.translated(self.connection):
            self.connection.execute(text.encode())

    def execute_composed(self, statement: compose.Composed) -> None:
        self.connection.execute(statement)

    def notify(self, channel: str) -> None:
        self.sql(_OWN).notify(channel=channel)


class PostgresListener:
    """Listens on a connection of its own. One that breaks is made anew, and then it is time to look."""

    def __init__(self, backend: PostgresBackend, schema: str, channel: str) -> None:
        self._backend = backend
        self._schema = schema
        self._channel = channel.encode()
        self._mine, self._others = socket.socketpair()
        self._mine.setblocking(False)
        self._others.setblocking(False)
        self._connection: _Connection | None = self._connect()

    def wait(self, timeout: float | None) -> bool:
        limit = min(SAFETY_SECONDS, SAFETY_SECONDS if timeout is None else timeout)
        if self._connection is None:
            self._reconnect(limit)
            return False
        end = time.monotonic() + limit
        hinted = False
        while not hinted:  # a hint of another topic is none
            ready = self._ready(end - time.monotonic())
            hinted = self._connection in ready and self._hinted(self._connection)
            if self._mine in ready or time.monotonic() >= end:
                break
        self._drain()
        return hinted

    def wake(self) -> None:
        with suppress(OSError):
            self._others.send(b"!")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._mine.close()
        self._others.close()

    def _connect(self) -> _Connection:
        connection = self._backend.connect()
        with self._backend.translated():
            connection.execute(compose.SQL("LISTEN {}").format(compose.Identifier(self._schema)))
        return connection

    def _ready(self, seconds: float) -> list[object]:
        return readable([self._mine, self._connection] if self._connection else [self._mine], seconds)

    def _reconnect(self, limit: float) -> None:
        try:
            self._connection = self._connect()
        except DatabaseUnavailable:
            self._ready(min(limit, RETRY_SECONDS))

    def _hinted(self, connection: _Connection) -> bool:
        found = False
        try:
            connection.pgconn.consume_input()
            while hint := connection.pgconn.notifies():
                found = found or hint.extra == self._channel
        except psycopg.Error as error:
            _log.warning("Lost the connection that listens on %s: %s", self._backend.name, " ".join(str(error).split()))
            connection.close()
            self._connection = None
            return True
        return found

    def _drain(self) -> None:
        with suppress(BlockingIOError):
            while self._mine.recv(16):
                pass


def _has_rows(cursor: psycopg.Cursor[Row]) -> bool:
    """As `cursor.description` says, which describes every column to say it."""
    return cursor.pgresult is not None and cursor.pgresult.status == psycopg.pq.ExecStatus.TUPLES_OK


def _own(name: str) -> bytes:
    return statements(_OWN, "postgres")[name].encode()
