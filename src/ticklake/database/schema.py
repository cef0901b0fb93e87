"""The seam between what uses a database and the two that we speak: one run's schema, and transactions in it."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from ticklake import faults
from ticklake.database.endings import ending
from ticklake.database.errors import SchemaTooNew, StatementEndsTransaction, TransactionGone, TransactionOver
from ticklake.database.statements import migrations, statements

_log = logging.getLogger(__name__)
Row = tuple[Any, ...]
_OWN = "ticklake.database"


class Transaction(ABC):
    """A transaction in one run's schema. Other packages run their own named statements in it with `sql(package)`."""

    def __init__(self, run_id: str, dialect: str, database: str, life: str = "") -> None:
        """`life`: of the server, another one after each restart; a file has but one."""
        self.run_id = run_id
        self.dialect = dialect
        self.database = database
        self.life = life
        self.over = False
        self.executed = 0
        self.foreign = False
        self._after_commit: dict[object, Callable[[], None]] = {}
        self._savepoints = 0

    def sql(self, package: str) -> Statements:
        """The statements in `<package>/sql/<dialect>/`, as functions that run here."""
        return Statements(self, package, statements(package, self.dialect))

    def after_commit(self, act: Callable[[], None], once: object = None) -> None:
        """Have `act` called once the commit has succeeded; never after a rollback, also of a savepoint around it.

        `once`: what it does; the same is done once.
        """
        self.check_open()
        self._after_commit.setdefault(object() if once is None else once, act)

    def check_open(self) -> None:
        """Raises `TransactionOver` after the end: the connection may be in somebody else's transaction by then.

        Raises `TransactionGone` if something in it has ended it: what follows would be committed on its own.
        """
        if self.over:
            raise TransactionOver(run_id=self.run_id)
        if self._is_gone():
            raise TransactionGone(run_id=self.run_id)

    def committed(self) -> None:
        """Does what was to be done after the commit. Whatever fails of it, the commit has succeeded."""
        for act in self._after_commit.values():
            try:
                act()
            except Exception as error:
                _log.warning("Run %s: an act after the commit failed: %r", self.run_id, error)

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Undo only what is done in here, where it fails; the transaction itself can go on."""
        self._savepoints += 1
        name = f"ticklake_part_{self._savepoints}"  # what is done in here may leave savepoints of its own open
        self._execute_script(f"SAVEPOINT {name}")
        before = len(self._after_commit)
        try:
            yield
            self._execute_script(f"RELEASE SAVEPOINT {name}")
        except Exception:  # an interrupt undoes the whole transaction
            while len(self._after_commit) > before:
                self._after_commit.popitem()
            self.check_open()
            self._execute_script(f"ROLLBACK TO SAVEPOINT {name}; RELEASE SAVEPOINT {name}")
            raise

    def execute(self, text: str, values: Mapping[str, Any]) -> list[Row]:
        """The rows a statement returns."""
        self.admit(text)
        return self._execute(text, values)

    def execute_many(self, text: str, values: Iterable[Mapping[str, Any]]) -> list[Row]:
        """The rows that a statement returns for all these values, one after the other."""
        self.admit(text)
        return self._execute_many(text, values)

    def execute_script(self, text: str) -> None:
        """Run several statements that take no values."""
        self.admit(text)
        self._execute_script(text)

    def admit(self, text: str) -> None:
        """A statement that is not ours is about to be executed. One that ends the transaction is refused."""
        if (statement := ending(text)) is not None:
            raise StatementEndsTransaction(run_id=self.run_id, statement=statement)
        self.foreign = True

    @abstractmethod
    def _is_gone(self) -> bool:
        """Whether the database is in no transaction any more, though it answers. Costs no round trip."""

    @abstractmethod
    def _execute(self, text: str, values: Mapping[str, Any]) -> list[Row]: ...

    @abstractmethod
    def _execute_many(self, text: str, values: Iterable[Mapping[str, Any]]) -> list[Row]: ...

    @abstractmethod
    def _execute_script(self, text: str) -> None: ...

    @abstractmethod
    def notify(self, channel: str) -> None:
        """Wake, after the commit, everyone in this run who listens to `channel`."""

    def apply_migrations(self, package: str) -> None:
        """Bring a package's tables up to date; a schema from a newer version is refused, never guessed at."""
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


def uncounted(statements: int) -> None:
    """Nobody wants to know."""


class Statements:
    """A package's statements bound to a transaction: `sql.mark_done(batch_id=7)` runs the one of that name."""

    def __init__(self, transaction: Transaction, package: str, texts: Mapping[str, str]) -> None:
        self._transaction = transaction
        self._package = package
        self._texts = texts

    def __getattr__(self, name: str) -> Statement:
        if name not in self._texts:
            raise AttributeError(f"There is no statement {name}; there are {', '.join(sorted(self._texts))}.")
        if not self._package.startswith("ticklake."):
            self._transaction.admit(self._texts[name])
        if faults.armed:
            point = f"sql.{self._package.removeprefix('ticklake.')}.{name}"
            return BreakableStatement(self._transaction, self._texts[name], point)
        return Statement(self._transaction, self._texts[name])


class Statement:
    """One statement: call it with its values, or with many sets of them."""

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


class BreakableStatement(Statement):
    """A statement in a process that a test makes fail: before it or after it."""

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


class Listener(Protocol):
    """Waits for hints on one channel of one run. A hint may be missed or come for nothing: look, then wait."""

    def wait(self, timeout: float | None) -> bool:
        """Return on a hint (true), on `wake()`, or after the timeout; sometimes for no reason."""

    def wake(self) -> None:
        """Make the waiting thread return; from any thread."""

    def close(self) -> None: ...


class Schema(Protocol):
    """One run's tables; `name` is what the database calls them: a schema, or a file."""

    run_id: str
    name: str
    database: str
    """The file, or the URL of the server without its password."""
    dialect: str
    count_statements: Callable[[int], None]
    """Told after every transaction how many statements it ran; to be replaced by whoever wants to know."""

    def transaction(self, *, durable: bool = True, patient: bool = True) -> AbstractContextManager[Transaction]:
        """Commits at the end, rolls back on an error. What is durable survives a power cut; the rest may be lost.

        A server that is away is waited for a while, unless not `patient`.
        """

    def autocommit(self, *, durable: bool = True) -> AbstractContextManager[Transaction]:
        """Like `transaction`, where each statement may commit on its own: for one statement, with fewer round trips."""

    def reading(self) -> AbstractContextManager[Transaction]:
        """A consistent view that writes nothing and waits for nobody."""

    def flaws(self) -> list[str]:
        """What is wrong with the file, found by reading all of it; a server sees to its own."""

    def prepare(self, package: str) -> None:
        """Create or upgrade a package's tables here, once; cheap when it has been done."""

    def listen(self, channel: str) -> Listener:
        """From now on, collect the hints of `channel`."""

    def now_ms(self) -> int:
        """The database's clock, in milliseconds since 1970."""

    def check_process(self) -> None:
        """Raises `DatabaseForked` in a process that was forked from the one that opened it."""

    def check_nesting(self) -> None:
        """Raises `NestedTransaction` if a transaction would wait for one of this same thread."""

    @property
    def inherited(self) -> bool:
        """Whether this process was forked from the one that opened it."""

    def pool(self) -> Mapping[str, int]:
        """Connections: `active`, `idle`, `total`, and threads `waiting` for one."""


class Backend(Protocol):
    """A database: a directory of SQLite files, or a PostgreSQL server."""

    def schema(self, run_id: str, *, create: bool = True) -> Schema: ...

    def runs(self) -> list[str]: ...

    def close(self) -> None: ...
