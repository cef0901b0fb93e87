"""A connection to PostgreSQL that knows its schema, and cleans up its session after foreign statements."""

from __future__ import annotations

import select
from contextlib import suppress
from functools import cached_property

import psycopg

from ticklake.database.schema import Row
from ticklake.database.statements import statements

OWN = "ticklake.database"
_UNDO = b"ROLLBACK; SELECT pg_advisory_unlock_all()"
_CLEAN = (
    b"SET CONSTRAINTS ALL IMMEDIATE; "
    b"SET SESSION AUTHORIZATION DEFAULT; RESET ALL; UNLISTEN *; SELECT pg_advisory_unlock_all(); CLOSE ALL; "
    b"DISCARD TEMP; "
)
"""Resets what foreign statements may have changed in the session. Prepared statements stay, because some are ours.

Deferred triggers come first: they may use a setting, a role or a temporary table of the transaction."""


class Connection(psycopg.Connection[Row]):
    """A connection that remembers its schema and whether its commits wait for the disk."""

    place: tuple[str, bool] | None = None
    life: str = ""
    """The start time of the server, when it was last read."""
    pooler: bool = False
    """Whether a pooler such as PgBouncer is used. Then each transaction may be in another session."""
    read_only: bool = False
    """Whether the server has refused to write. Another connection may reach a writable server."""

    @cached_property
    def statements(self) -> psycopg.Cursor[Row]:
        """The cursor of all statements. Reusing it caches type conversions and saves a fifth of the time."""
        return self.cursor(binary=True)

    def identify_server(self) -> None:
        """Reads the server's start time and detects a pooler, which reports a made-up process id to its clients."""
        question = "SELECT pg_backend_pid(), pg_postmaster_start_time()::text"
        ((pid, self.life),) = self.execute(question).fetchall()
        self.pooler = pid != self.info.backend_pid
        if self.pooler:
            self.prepare_threshold = None

    def enter(self, schema: str, durable: bool) -> None:
        """Sets schema and durability for the session or, behind a pooler, for this transaction."""
        if self.pooler or self.place != (schema, durable):
            self.place = None
            self.execute(own("enter"), self._settings(schema, durable))
            self.place = (schema, durable)

    def clean_and_commit(self, schema: str, durable: bool) -> str | None:
        """Commits foreign statements and resets the session in one round trip. Returns the tag of the commit."""
        cursor = psycopg.ClientCursor(self)  # only client-side binding allows values in several statements
        cursor.execute(_CLEAN + own("enter") + b"; COMMIT", self._settings(schema, durable))
        while cursor.nextset():
            pass
        return cursor.statusmessage

    def is_usable(self) -> bool:
        """Returns whether an idle connection is usable. If there is something to read, the server has closed it."""
        if self.closed or self.pgconn.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            return False
        watched = select.poll()
        watched.register(self.fileno(), select.POLLIN)
        return not watched.poll(0)

    def roll_back(self) -> bool:
        """Rolls back an open transaction. Returns whether none is open any more."""
        status = self.pgconn.transaction_status
        if status in (psycopg.pq.TransactionStatus.INTRANS, psycopg.pq.TransactionStatus.INERROR):
            with suppress(psycopg.Error):
                self.execute(_UNDO, prepare=False)
        return self.pgconn.transaction_status == psycopg.pq.TransactionStatus.IDLE

    def _settings(self, schema: str, durable: bool) -> dict[str, object]:
        return {"search_path": f'"{schema}", pg_temp', "commit": "on" if durable else "off", "local": self.pooler}


def own(name: str) -> bytes:
    """Returns a statement of this package."""
    return statements(OWN, "postgres")[name].encode()
