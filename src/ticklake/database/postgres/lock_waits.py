"""PostgreSQL: says whom the upgrade of a run's tables waits for, and gives up after a while."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg

from ticklake.database.errors import LockNotAvailable, TablesLocked
from ticklake.database.schema import Row, Transaction
from ticklake.errors import TickLakeError

_log = logging.getLogger(__name__)
_OWN = "ticklake.database"
LOOK_SECONDS = 2.0
LOCK_SECONDS = 60.0
_BLOCKING = """SELECT coalesce(nullif(a.application_name, ''), a.usename, 'somebody'), b.pid
FROM unnest(pg_blocking_pids(%s)) AS b (pid) LEFT JOIN pg_stat_activity AS a USING (pid) ORDER BY b.pid"""


@contextmanager
def told(connect: Callable[[], psycopg.Connection[Row]], transaction: Transaction) -> Iterator[None]:
    """In here, a wait for a lock is one warning, and after a minute a `TablesLocked`."""
    own = transaction.sql(_OWN)
    ((pid,),) = own.limit_waiting(lock_timeout=f"{round(LOCK_SECONDS * 1000)}ms")
    over, holders = threading.Event(), list[str]()

    def watch() -> None:
        while not over.wait(LOOK_SECONDS) and not holders:
            holders.extend(_blocking(connect, pid))
            if holders and not over.is_set():
                who = ", ".join(holders)
                _log.warning("Waiting to make or upgrade tables of run %s: locked by %s", transaction.run_id, who)

    watching = threading.Thread(target=watch, name="lock-watch", daemon=True)
    watching.start()
    try:
        yield
    except LockNotAvailable as error:
        who = ", ".join(holders) or "another session"
        raise TablesLocked(
            run_id=transaction.run_id, database=transaction.database, who=who, seconds=LOCK_SECONDS
        ) from error
    finally:
        over.set()
        watching.join()


def _blocking(connect: Callable[[], psycopg.Connection[Row]], pid: int) -> list[str]:
    """Who keeps a session waiting; none if nobody does, or if that cannot be asked now."""
    try:
        with connect() as connection:
            return [f"{name} (pid {holder})" for name, holder in connection.execute(_BLOCKING, (pid,)).fetchall()]
    except (psycopg.Error, TickLakeError) as error:
        _log.debug("Could not ask whom session %s waits for: %s", pid, error)
        return []
