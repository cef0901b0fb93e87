"""What a database's error means: is the database away, or did this piece of work fail?

An outage is nobody's fault: the work is repeated when it is over, however often. Everything else is the fault of the
work, and is counted: a message whose work fails too often becomes a dead letter.
"""

from __future__ import annotations

from enum import Enum

from ticklake.database.errors import (
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
"""The errors that count as no attempt. All others do."""


class Fault(Enum):
    """The kinds of errors that callers tell apart."""

    UNAVAILABLE = "the server or the connection is gone"
    LOCKED = "another program has the file"
    FULL = "the disk is full"
    FILE = "the file cannot be read or written"
    ABORTED = "this transaction was ended; it may succeed if it is repeated"
    LOCK = "another transaction has a lock that this one needs"
    UNIQUE = "a constraint refused a row"
    DAMAGED = "the file is no database, or a damaged one"
    WRONG = "the statement is wrong, or fails in a way that no repetition changes"


# Of these classes of SQLSTATEs (the first two characters) every state is the same.
_CLASSES = {
    "08": Fault.UNAVAILABLE,  # connection exceptions; PgBouncer says 08P01 for whatever keeps it from its server
    "40": Fault.ABORTED,  # serialization failure, deadlock: one of several transactions has to give way
    "53": Fault.ABORTED,  # out of memory, over a limit such as temp_file_limit: mostly of this statement
}
_STATES = {
    "40002": Fault.WRONG,  # a constraint refused the commit
    "53100": Fault.FULL,
    "53300": Fault.UNAVAILABLE,  # too many connections
    "57P01": Fault.UNAVAILABLE,  # shutdown, or an administrator ended the connection
    "57P02": Fault.UNAVAILABLE,  # the server crashed
    "57P03": Fault.UNAVAILABLE,  # it is starting
    "57P04": Fault.UNAVAILABLE,  # the database was dropped: no message's fault
    "57P05": Fault.UNAVAILABLE,  # idle_session_timeout, which only ends what does nothing
    "25006": Fault.UNAVAILABLE,  # the server has turned read-only
    "57014": Fault.ABORTED,  # statement_timeout, or an administrator cancelled it
    "55P03": Fault.LOCK,  # lock_timeout, or NOWAIT
    # These two end the connection. It is the work that took too long, not the server that is away.
    "25P03": Fault.ABORTED,  # idle_in_transaction_session_timeout
    "25P04": Fault.ABORTED,  # transaction_timeout
    "23505": Fault.UNIQUE,
}

# https://www.sqlite.org/rescode.html, without the extended part.
_RESULTS = {
    3: Fault.FILE,  # PERM
    4: Fault.ABORTED,  # ABORT
    5: Fault.LOCKED,  # BUSY: another process
    6: Fault.ABORTED,  # LOCKED: another statement of this very connection
    7: Fault.ABORTED,  # NOMEM
    8: Fault.FILE,  # READONLY
    9: Fault.ABORTED,  # INTERRUPT
    10: Fault.FILE,  # IOERR
    11: Fault.DAMAGED,  # CORRUPT
    13: Fault.FULL,  # FULL
    14: Fault.FILE,  # CANTOPEN
    15: Fault.LOCKED,  # PROTOCOL: too many begin at once
    19: Fault.UNIQUE,  # CONSTRAINT
    26: Fault.DAMAGED,  # NOTADB
}


def postgres_fault(sqlstate: str | None, *, lost: bool) -> Fault:
    """What a SQLSTATE means. `lost`: the connection is broken, or was never made; then there may be no SQLSTATE.

    Class 58 and XX (a file that cannot be read, corrupted data, internal errors) are the statement's: the server
    answers, and other statements work.
    """
    state = sqlstate or ""
    known = _STATES.get(state) or _CLASSES.get(state[:2])
    return known or (Fault.UNAVAILABLE if lost else Fault.WRONG)


def in_our_words(fault: Fault, database: object, reason: str) -> TickLakeError:
    """The error that callers get; `DatabaseLocked`, which says for how long, is up to them."""
    errors: dict[Fault, TickLakeError] = {
        Fault.UNAVAILABLE: DatabaseUnavailable(database=database, reason=reason),
        Fault.FULL: DatabaseFull(database=database),
        Fault.FILE: DatabaseFileUnusable(database=database, reason=reason),
        Fault.ABORTED: TransactionAborted(database=database, reason=reason),
        Fault.LOCK: LockNotAvailable(database=database, reason=reason),
        Fault.UNIQUE: UniqueViolation(database=database, reason=reason),
        Fault.DAMAGED: DatabaseDamaged(database=database, reason=reason),
    }
    return errors.get(fault) or DatabaseUnusable(database=database, reason=reason)


def sqlite_fault(result: int) -> Fault:
    """What a result code means, with or without its extended part."""
    return _RESULTS.get(result & 0xFF, Fault.WRONG)
