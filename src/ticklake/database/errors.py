"""Errors of databases."""

from __future__ import annotations

from ticklake.errors import TickLakeError


class InvalidName(TickLakeError):
    message = "A {kind} cannot be {name!r}: {reason}. Use 1 to 255 visible characters."
    kind: str
    name: str
    reason: object


class UnknownDatabase(TickLakeError):
    message = "{url!r} is not a database URL. Write sqlite:///DIRECTORY or postgresql://USER:PASSWORD@HOST/NAME."
    url: str


class BadDatabaseUrl(TickLakeError):
    message = "The database URL {url!r} is not valid: {reason}. Write postgresql://USER:PASSWORD@HOST:PORT/NAME."
    url: str
    reason: str


class PostgresMissing(TickLakeError):
    message = "PostgreSQL needs {module}, which is not installed: pip install 'ticklake[postgres]'."
    module: str | None


class RunNotInDatabase(TickLakeError):
    message = "No run {run_id!r} in {database}. `ticklake topics --database {database}` lists the runs."
    run_id: str
    database: object


class DatabaseClosed(TickLakeError):
    message = "The database {database} was closed before this call. Open it again, or close it later."
    database: object


class DatabaseLocked(TickLakeError):
    message = "Another program has locked {database} for {seconds:.0f} seconds. Find it and end it, then try again."
    database: object
    seconds: float


class DatabaseBusy(DatabaseLocked):
    message = (
        "Another transaction of this process has kept {database} for {seconds:.0f} seconds. Look for a thread that "
        "waits inside a transaction, and make transactions shorter."
    )


class TablesLocked(TickLakeError):
    message = (
        "The tables of run {run_id} in {database} cannot be created or upgraded: {who} has locked them for "
        "{seconds:.0f} seconds. Nothing was changed. Wait until that session is done, or end it with "
        "`SELECT pg_terminate_backend(PID)`, then try again."
    )
    run_id: str
    database: object
    who: str
    seconds: float


class DatabaseFull(TickLakeError):
    message = "No space is left for {database}: nothing of this call was stored. Free up space, then try again."
    database: object


class DatabaseUnusable(TickLakeError):
    message = (
        "The database {database} cannot be used: {reason}. Check the path, its permissions and what is stored there."
    )
    database: object
    reason: object


class DatabaseFileUnusable(DatabaseUnusable):
    message = (
        "The file {database} cannot be used: {reason}. Check its disk and its permissions; nothing of this call was "
        "stored."
    )


class DatabaseDamaged(DatabaseUnusable):
    message = (
        "The database {database} is damaged: {reason}. Stop every process that uses it, then move it away with its "
        "-wal and -shm files; `ticklake reconcile RUN --apply --create` announces the run's files again, and indexers "
        "skip ticks that are present."
    )


class DatabaseMoved(DatabaseUnusable):
    message = (
        "{reason} was moved, deleted or replaced while {database} was in use: writes would be lost. Stop every process "
        "that uses it; restore the file, or move the other files away too; then start again."
    )


class DatabaseForked(TickLakeError):
    message = (
        "{database} was opened by process {parent} and cannot be used in process {child}, which was forked from it. "
        "Open it after the fork."
    )
    database: object
    parent: int
    child: int


class DatabaseInUseAtFork(TickLakeError):
    message = (
        "Process {child} cannot open {database}: its parent forked during a transaction in {used}, and SQLite's locks "
        "do not survive that. Fork outside of transactions, or start the process with `spawn`."
    )
    database: object
    used: object
    child: int


class DatabaseUnavailable(TickLakeError):
    message = "The database {database} does not answer: {reason}. Readers and writers continue once it answers."
    database: object
    reason: object


class ConnectionRefused(DatabaseUnavailable):
    message = (
        "The server of {database} answers, but refuses the connection: {reason}. Check user, password and the name of "
        "the database."
    )


class PoolExhausted(DatabaseUnavailable):
    message = (
        "No connection of this process to {database} is free: {reason}. Make transactions shorter, pass them on as "
        "`connection=` instead of beginning others inside them, or set a larger `max_pool_size`."
    )


class TransactionAborted(TickLakeError):
    message = "The database {database} aborted this transaction: {reason}. Nothing was stored; it can be repeated."
    database: object
    reason: object


class LockNotAvailable(TransactionAborted):
    message = (
        "Another transaction in {database} has kept a lock that this one needs: {reason}. Nothing of it was stored; it "
        "can be repeated."
    )


class UniqueViolation(TickLakeError):
    message = "{database} refused a row: {reason}."
    database: object
    reason: object


class NestedTransaction(TickLakeError):
    message = "This thread already has a transaction in {database}: pass it as `connection=`, or finish it first."
    database: object


class SchemaTooNew(TickLakeError):
    message = (
        "The tables of {package} in run {run_id!r} have version {found}, but this TickLake knows {known}. Upgrade "
        "TickLake; `ticklake db status` lists all versions."
    )
    package: str
    run_id: str
    found: int
    known: int


class TransactionOver(TickLakeError):
    message = "The transaction in run {run_id!r} has ended. Use it only inside its `with` block."
    run_id: str


class BadStatement(TickLakeError):
    message = "{file}: {reason}. Put a line `-- name: …` with a unique name above each statement."
    file: str
    reason: str


class WrongPlaceholder(TickLakeError):
    message = (
        "A statement in run {run_id!r} was not executed: {reason}. Write each value as :name, on every database, and "
        "give a value for each name."
    )
    run_id: str
    reason: str


class StatementFailed(DatabaseUnusable):
    message = "A statement failed in {database}: {reason}. Check the statement, and whether this user may execute it."


class StatementEndsTransaction(TickLakeError):
    message = (
        "{statement} was refused: only the `with` block or the consumer that began the transaction in run {run_id!r} "
        "may end it. Raise an exception to undo the work, or undo a part of it with `savepoint()`."
    )
    run_id: str
    statement: str


class StatementOfSavepoint(TickLakeError):
    message = (
        "{statement} was refused in run {run_id!r}: it could undo rows, but not what was planned for after the commit. "
        "Use `with tx.savepoint():`; an exception undoes that block."
    )
    run_id: str
    statement: str


class TableHidden(TickLakeError):
    message = (
        "A temporary table {table!r} was refused in run {run_id!r}: it hides the table of that name, so rows could be "
        "stored in it and lost. Nothing was stored. Give it another name."
    )
    run_id: str
    table: str


class TransactionGone(TickLakeError):
    message = (
        "The transaction in run {run_id!r} was ended inside its `with` block, so its changes may be lost. Only the "
        "block itself may end it."
    )
    run_id: str


class ReadingOnly(TickLakeError):
    message = "`reading()` of run {run_id!r} cannot write. Use `transaction()`."
    run_id: str


UNREADABLE = (DatabaseDamaged, DatabaseFileUnusable, DatabaseLocked)
"""The errors of a file that may hold a run, although nobody can say which."""
