"""Wake-ups from PostgreSQL: LISTEN on a separate connection."""

from __future__ import annotations

import logging
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql as compose

from ticklake.database.errors import DatabaseUnavailable, TransactionAborted
from ticklake.database.fork import Fork, Inheritable, leak
from ticklake.database.readiness import readable

if TYPE_CHECKING:
    from ticklake.database.postgres.backend import PostgresBackend
    from ticklake.database.postgres.connection import Connection

_log = logging.getLogger(__name__)
SAFETY_SECONDS = 30.0
RETRY_SECONDS = 0.2
POOLER_SECONDS = 1.0


class PostgresListener(Inheritable):
    """Listens on a separate connection. After a reconnect it returns a hint, because one may have been missed.

    LISTEN does not work behind a pooler: then it returns once a second.
    """

    def __init__(self, backend: PostgresBackend, schema: str, channel: str) -> None:
        super().__init__()
        self._pooler = False
        self._backend = backend
        self._schema = schema
        self._channel = channel.encode()
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wake_receiver.setblocking(False)
        self._wake_sender.setblocking(False)
        self._connection: Connection | None = self._connect()

    def wait(self, timeout: float | None) -> bool:
        self.check_process(self._backend.name)
        limit = min(SAFETY_SECONDS, SAFETY_SECONDS if timeout is None else timeout)
        if self._pooler:
            self._ready(min(limit, POOLER_SECONDS))
            self._drain()
            return False
        if self._connection is None:
            self._reconnect(limit)
            return False
        end = time.monotonic() + limit
        hinted = False
        while not hinted:  # ignore hints of other topics
            ready = self._ready(end - time.monotonic())
            hinted = self._connection in ready and self._hinted(self._connection)
            if self._wake_receiver in ready or time.monotonic() >= end:
                break
        self._drain()
        return hinted

    def wake(self) -> None:
        with suppress(OSError):
            self._wake_sender.send(b"!")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._wake_receiver.close()
        self._wake_sender.close()

    def _connect(self) -> Connection | None:
        connection = self._backend.connect()
        self._pooler = connection.pooler
        if connection.pooler:
            connection.close()
            return None
        try:
            with self._backend.translated(connection):
                connection.execute(compose.SQL("LISTEN {}").format(compose.Identifier(self._schema)))
        except BaseException:
            connection.close()
            raise
        return connection

    def _disown(self, fork: Fork) -> None:  # noqa: ARG002
        if self._connection is not None:
            leak(self._connection)
        self._connection = None

    def _ready(self, seconds: float) -> list[object]:
        return readable([self._wake_receiver, self._connection] if self._connection else [self._wake_receiver], seconds)

    def _reconnect(self, limit: float) -> None:
        try:
            self._connection = self._connect()
        except (DatabaseUnavailable, TransactionAborted):
            self._ready(min(limit, RETRY_SECONDS))

    def _hinted(self, connection: Connection) -> bool:
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
            while self._wake_receiver.recv(16):
                pass
