"""Classifies errors of databases: is the database unavailable, or did this work fail?

After an outage the work is repeated, without a limit. Every other failure counts as an attempt: a message that fails
too often becomes a dead letter.
"""

from __future__ import annotations

import re
from enum import Enum

from ticklake.database.errors import (
    ConnectionRefused,
    DatabaseDamaged,
    DatabaseFileUnusable,
    DatabaseFull,
    DatabaseLocked,
    DatabaseUnavailable,
    DatabaseUnusable,
    LockNotAvailable,
    TransactionAborted,
    UniqueViolation,
)
from ticklake.errors import TickLakeError

OUTAGES = (DatabaseFull, DatabaseLocked, DatabaseUnavailable, DatabaseFileUnusable)
"""The errors that do not count as an attempt. All others do."""


class Fault(Enum):
    """The kinds of errors that callers distinguish."""

    UNAVAILABLE = "the server or the connection is gone"
    REFUSED = "the server does not accept this user, this password or this database"
    LOCKED = "another program has locked the file"
    FULL = "the disk is full"
    FILE = "the file cannot be read or written"
    ABORTED = "this transaction was aborted; it may succeed if it is repeated"
    LOCK = "another transaction has a lock that this one needs"
    UNIQUE = "a constraint refused a row"
    DAMAGED = "the file is not a database, or is damaged"
    WRONG = "the statement is wrong; it would fail again"


# All SQLSTATEs of these classes (the first two characters) mean the same.
_CLASSES = {
    "08": Fault.UNAVAILABLE,  # connection exceptions; PgBouncer returns 08P01 if it cannot reach its server
    "40": Fault.ABORTED,  # serialization failure, deadlock: one of several transactions must be repeated
    "53": Fault.ABORTED,  # out of memory, or above a limit such as temp_file_limit: usually because of this statement
}
_STATES = {
    "40002": Fault.WRONG,  # a constraint refused the commit
    "53100": Fault.FULL,
    "53300": Fault.UNAVAILABLE,  # too many connections
    "57P01": Fault.UNAVAILABLE,  # shutdown, or an administrator ended the connection
    "57P02": Fault.UNAVAILABLE,  # the server crashed
    "57P03": Fault.UNAVAILABLE,  # the server is starting
    "57P04": Fault.UNAVAILABLE,  # the database was dropped: not the fault of a message
    "57P05": Fault.UNAVAILABLE,  # idle_session_timeout, which only ends idle sessions
    "25006": Fault.UNAVAILABLE,  # the server has become read-only
    "57014": Fault.ABORTED,  # statement_timeout, or an administrator cancelled it
    "55P03": Fault.LOCK,  # lock_timeout, or NOWAIT
    # These two end the connection, but because the work took too long, not because of an outage.
    "25P03": Fault.ABORTED,  # idle_in_transaction_session_timeout
    "25P04": Fault.ABORTED,  # transaction_timeout
    "23505": Fault.UNIQUE,
}

_REFUSALS = re.compile(
    r"authentication failed|no password supplied|no pg_hba.conf entry|(role|database) \".*\" does not exist"
    r"|permission denied for database|server does not support SSL|is not permitted to log in"
)

# https://www.sqlite.org/rescode.html, without the extended part.
_RESULTS = {
    3: Fault.FILE,  # PERM
    4: Fault.ABORTED,  # ABORT
    5: Fault.LOCKED,  # BUSY: another process
    6: Fault.ABORTED,  # LOCKED: another statement of the same connection
    7: Fault.ABORTED,  # NOMEM
    8: Fault.FILE,  # READONLY
    9: Fault.ABORTED,  # INTERRUPT
    10: Fault.FILE,  # IOERR
    11: Fault.DAMAGED,  # CORRUPT
    13: Fault.FULL,  # FULL
    14: Fault.FILE,  # CANTOPEN
    15: Fault.LOCKED,  # PROTOCOL: too many transactions begin at once
    19: Fault.UNIQUE,  # CONSTRAINT
    26: Fault.DAMAGED,  # NOTADB
}


def postgres_fault(sqlstate: str | None, *, lost: bool) -> Fault:
    """Classifies a SQLSTATE. `lost`: the connection is broken or was never made, so there may be no SQLSTATE.

    Classes 58 and XX (unreadable files, corrupted data, internal errors) count as wrong statements: the server
    answers, and other statements work.
    """
    state = sqlstate or ""
    known = _STATES.get(state) or _CLASSES.get(state[:2])
    return known or (Fault.UNAVAILABLE if lost else Fault.WRONG)


def is_refusal(message: str) -> bool:
    """Returns whether a failed connection needs an operator. libpq only gives the text of the server, without a code.

    If the server speaks another language than English, a refusal looks like an outage.
    """
    return _REFUSALS.search(message) is not None


def translate(fault: Fault, database: object, reason: str) -> TickLakeError:
    """Returns the error for callers, except `DatabaseLocked`, which needs the duration."""
    errors: dict[Fault, TickLakeError] = {
        Fault.UNAVAILABLE: DatabaseUnavailable(database=database, reason=reason),
        Fault.REFUSED: ConnectionRefused(database=database, reason=reason),
        Fault.FULL: DatabaseFull(database=database),
        Fault.FILE: DatabaseFileUnusable(database=database, reason=reason),
        Fault.ABORTED: TransactionAborted(database=database, reason=reason),
        Fault.LOCK: LockNotAvailable(database=database, reason=reason),
        Fault.UNIQUE: UniqueViolation(database=database, reason=reason),
        Fault.DAMAGED: DatabaseDamaged(database=database, reason=reason),
    }
    return errors.get(fault) or DatabaseUnusable(database=database, reason=reason)


def sqlite_fault(result: int) -> Fault:
    """Classifies a result code, with or without its extended part."""
    return _RESULTS.get(result & 0xFF, Fault.WRONG)
