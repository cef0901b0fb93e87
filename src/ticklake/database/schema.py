"""The interface of databases: the schema of a run, and transactions in it. SQLite and PostgreSQL implement it."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from ticklake import faults
from ticklake.database.endings import ending, prepares, savepoint
from ticklake.database.errors import (
    DatabaseUnusable,
    SchemaTooNew,
    StatementEndsTransaction,
    StatementFailed,
    StatementOfSavepoint,
    TransactionGone,
    TransactionOver,
    WrongPlaceholder,
)
from ticklake.database.placeholders import placeholders
from ticklake.database.statements import migrations, statements

_log = logging.getLogger(__name__)
Row = tuple[Any, ...]
_OWN = "ticklake.database"


class Transaction(ABC):
    """A transaction in the schema of a run. Packages execute their named statements with `sql(package)`."""

    def __init__(self, run_id: str, dialect: str, database: str, life: str = "") -> None:
        """`life` identifies the server process and changes with each restart; a file has only one."""
        self.run_id = run_id
        self.dialect = dialect
        self.database = database
        self.life = life
        self.over = False
        self.executed = 0
        self.foreign = False
        self.prepares = False
        self._after_commit: dict[object, Callable[[], None]] = {}
        self._after_end: list[Callable[[], None]] = []
        self._savepoints = 0

    def sql(self, package: str) -> Statements:
        """Returns the statements in `<package>/sql/<dialect>/` as functions of this transaction."""
        return Statements(self, package, statements(package, self.dialect))

    def after_commit(self, act: Callable[[], None], once: object = None) -> None:
        """Calls `act` after a successful commit; not after a rollback, including that of an enclosing savepoint.

        Of several acts with the same `once`, only one is called.
        """
        self.check_open()
        self._after_commit.setdefault(object() if once is None else once, act)

    def after_end(self, act: Callable[[], None]) -> None:
        """Calls `act` after the commit or the rollback, when this thread can begin another transaction."""
        self._after_end.append(act)

    def check_open(self) -> None:
        """Raises `TransactionOver` after the end, when the connection may belong to another transaction.

        Raises `TransactionGone` if a statement has ended the transaction: later statements would commit separately.
        """
        if self.over:
            raise TransactionOver(run_id=self.run_id)
        if self._is_gone():
            raise TransactionGone(run_id=self.run_id)

    def committed(self) -> None:
        """Calls the acts after the commit. A failure is only logged, because the commit has succeeded."""
        self._call(self._after_commit.values(), "commit")

    def ended(self) -> None:
        """Calls the acts after the end, each once. A failure is only logged."""
        acts, self._after_end = self._after_end, []
        self._call(acts, "end")

    def _call(self, acts: Iterable[Callable[[], None]], after: str) -> None:
        for act in acts:
            try:
                act()
            except Exception as error:
                _log.warning("Run %s: a callback after the %s failed: %r", self.run_id, after, error)

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Undoes only this block if it fails. The transaction can continue."""
        self._savepoints += 1
        name = f"ticklake_part_{self._savepoints}"  # unique, because the block may leave savepoints open
        self._execute_script(f"SAVEPOINT {name}")
        before = len(self._after_commit)
        try:
            yield
            self._execute_script(f"RELEASE SAVEPOINT {name}")
        except Exception:  # a KeyboardInterrupt undoes the whole transaction
            while len(self._after_commit) > before:
                self._after_commit.popitem()
            self.check_open()
            self._execute_script(f"ROLLBACK TO SAVEPOINT {name}; RELEASE SAVEPOINT {name}")
            raise

    def execute(self, text: str, values: Mapping[str, Any]) -> list[Row]:
        """Executes a statement and returns its rows. It names its values `:name`, on every database."""
        self.admit(text)
        with self._caller_fault():
            return self._execute(self._bound(text, values), values)

    def execute_many(self, text: str, values: Iterable[Mapping[str, Any]]) -> list[Row]:
        """Executes a statement for each set of values and returns all rows."""
        self.admit(text)
        given = list(values)
        with self._caller_fault():
            return self._execute_many(self._bound(text, *given), given)

    def execute_script(self, text: str) -> None:
        """Executes several statements without values."""
        self.admit(text)
        self._execute_script(text)

    def admit(self, text: str) -> None:
        """Checks a foreign statement before it is executed. Refuses one that ends the transaction or a part of it."""
        if (statement := ending(text)) is not None:
            raise StatementEndsTransaction(run_id=self.run_id, statement=statement)
        if (statement := savepoint(text)) is not None:
            raise StatementOfSavepoint(run_id=self.run_id, statement=statement)
        self.foreign = True
        self.prepares = self.prepares or prepares(text)

    def _bound(self, text: str, *values: Mapping[str, Any]) -> str:
        """Returns a caller's statement as the driver expects it. Raises `WrongPlaceholder` if its values do not fit."""
        names, percents, psycopg = placeholders(text)
        reason = None
        if percents and (names or self.dialect != "postgres"):
            reason = f"it names a value %({min(percents)})s"
        for given in values:
            if missing := names - given.keys():
                reason = f"it has no value for :{min(missing)}"
        if reason is not None:
            raise WrongPlaceholder(run_id=self.run_id, reason=reason)
        return psycopg if self.dialect == "postgres" else text

    @contextmanager
    def _caller_fault(self) -> Iterator[None]:
        """Says that a caller's statement is wrong, not the database."""
        try:
            yield
        except DatabaseUnusable as error:
            if type(error) is not DatabaseUnusable:
                raise
            raise StatementFailed(database=error.database, reason=error.reason) from error

    @abstractmethod
    def _is_gone(self) -> bool:
        """Returns whether the transaction was ended although the database answers. Needs no round trip."""

    @abstractmethod
    def _execute(self, text: str, values: Mapping[str, Any]) -> list[Row]: ...

    @abstractmethod
    def _execute_many(self, text: str, values: Iterable[Mapping[str, Any]]) -> list[Row]: ...

    @abstractmethod
    def _count(self, text: str, values: Iterable[Mapping[str, Any]]) -> int: ...

    @abstractmethod
    def _execute_script(self, text: str) -> None: ...

    @abstractmethod
    def notify(self, channel: str) -> None:
        """Wakes up all listeners of `channel` in this run after the commit."""

    def apply_migrations(self, package: str) -> None:
        """Upgrades the tables of a package. Raises `SchemaTooNew` for a newer version."""
        steps = migrations(package, self.dialect)
        own = self.sql(_OWN)
        ((applied,),) = own.version_of_package(package=package)
        known = steps[-1].number if steps else 0
        if applied > known:
            raise SchemaTooNew(package=package, run_id=self.run_id, found=applied, known=known)
        for step in steps:
            if step.number > applied:
                self.execute_script(step.text)
                own.record_version(package=package, version=step.number)


def ignore_count(statements: int) -> None:
    """The default of `count_statements`: does nothing."""


class Statements:
    """The statements of a package in a transaction: `sql.mark_done(batch_id=7)` executes `mark_done`."""

    def __init__(self, transaction: Transaction, package: str, texts: Mapping[str, str]) -> None:
        self._transaction = transaction
        self._package = package
        self._texts = texts

    def __getattr__(self, name: str) -> Statement:
        if name not in self._texts:
            raise AttributeError(f"There is no statement {name}; known: {', '.join(sorted(self._texts))}.")
        if not self._package.startswith("ticklake."):
            return ForeignStatement(self._transaction, self._texts[name])
        if faults.armed:
            point = f"sql.{self._package.removeprefix('ticklake.')}.{name}"
            return FaultyStatement(self._transaction, self._texts[name], point)
        return Statement(self._transaction, self._texts[name])


class Statement:
    """A statement. Call it with its values, or `many` with several sets of values."""

    __slots__ = ("_text", "_transaction")

    def __init__(self, transaction: Transaction, text: str) -> None:
        self._transaction = transaction
        self._text = text

    def __call__(self, **values: Any) -> list[Row]:
        self._transaction.executed += 1
        return self._transaction._execute(self._text, values)

    def many(self, values: Iterable[Mapping[str, Any]]) -> list[Row]:
        self._transaction.executed += 1
        return self._transaction._execute_many(self._text, values)

    def count(self, values: Iterable[Mapping[str, Any]]) -> int:
        """Like `many`, but returns the number of rows that it changed. Rows that triggers change do not count."""
        self._transaction.executed += 1
        return self._transaction._count(self._text, values)


class ForeignStatement(Statement):
    """A statement of a package that is not ours."""

    __slots__ = ()

    def __call__(self, **values: Any) -> list[Row]:
        self._transaction.executed += 1
        return self._transaction.execute(self._text, values)

    def many(self, values: Iterable[Mapping[str, Any]]) -> list[Row]:
        self._transaction.executed += 1
        return self._transaction.execute_many(self._text, values)


class FaultyStatement(Statement):
    """A statement with fault points before and after it, for tests."""

    __slots__ = ("_point",)

    def __init__(self, transaction: Transaction, text: str, point: str) -> None:
        super().__init__(transaction, text)
        self._point = point

    def __call__(self, **values: Any) -> list[Row]:
        with faults.around(self._point):
            return super().__call__(**values)

    def many(self, values: Iterable[Mapping[str, Any]]) -> list[Row]:
        with faults.around(self._point):
            return super().many(values)

    def count(self, values: Iterable[Mapping[str, Any]]) -> int:
        with faults.around(self._point):
            return super().count(values)


class Listener(Protocol):
    """Waits for hints on a channel of a run. Hints may be lost or false: read the table first, then wait."""

    def wait(self, timeout: float | None) -> bool:
        """Returns true on a hint, false on `wake()` or after the timeout. May also return early."""

    def wake(self) -> None:
        """Makes the waiting thread return. Can be called from any thread."""

    def close(self) -> None: ...


class Schema(Protocol):
    """The tables of one run. `name` is their name in the database: a schema or a file."""

    run_id: str
    name: str
    database: str
    """The file, or the URL of the server without its password."""
    dialect: str
    count_statements: Callable[[int], None]
    """Called after every transaction with its number of statements. Replace it to count them."""

    def transaction(self, *, durable: bool = True, patient: bool = True) -> AbstractContextManager[Transaction]:
        """Commits at the end, rolls back on an error. A durable commit survives a power cut; others may be lost.

        If `patient`, waits a while for a server that does not answer.
        """

    def autocommit(self, *, durable: bool = True) -> AbstractContextManager[Transaction]:
        """Like `transaction`, but each statement may commit separately. Saves round trips for a single statement."""

    def reading(self) -> AbstractContextManager[Transaction]:
        """Opens a consistent snapshot. It cannot write and waits for no lock."""

    def flaws(self) -> list[str]:
        """Reads the whole file and returns what is damaged. Always empty for a server, which checks itself."""

    def prepare(self, package: str) -> None:
        """Creates or upgrades the tables of a package. Repeated calls are cheap."""

    def listen(self, channel: str) -> Listener:
        """Starts to collect the hints of `channel`."""

    def now_ms(self) -> int:
        """Returns the time of the database's clock, in milliseconds since 1970."""

    def check_process(self) -> None:
        """Raises `DatabaseForked` if the process that opened it forked this one."""

    def open_transaction(self) -> Transaction | None:
        """Returns a transaction of this thread that can write and is still open; None if there is none."""

    def check_nesting(self) -> None:
        """Raises `NestedTransaction` if this thread has a transaction open: another one could wait for it."""

    @property
    def inherited(self) -> bool:
        """Whether the process that opened it forked this one."""

    def pool(self) -> Mapping[str, int]:
        """Returns the connections `active`, `idle` and `total`, and the threads `waiting` for one."""


class Backend(Protocol):
    """A database: a directory of SQLite files, or a PostgreSQL server."""

    def schema(self, run_id: str, *, create: bool = True) -> Schema: ...

    def runs(self) -> list[str]: ...

    def stamps(self, run_ids: Sequence[str]) -> dict[str, object]:
        """Returns a value for each of these runs that is there. It changes after every write to the run.

        None: the run was written to just now, so a write may leave the value as it is. A server may need some seconds
        to change the value.
        """

    def drop(self, run_id: str) -> bool:
        """Removes a run with all of its tables. Returns whether there was one."""
        ...

    def branch(self) -> Backend:
        """Returns the same database with schemas of its own. Closing it leaves this one open."""

    @property
    def damaged(self) -> list[str]:
        """Why runs are not in the last list of runs: their files are damaged."""
        ...

    def close(self) -> None: ...
