"""PostgreSQL: reports which session blocks the upgrade of a run's tables, and gives up after a minute."""

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
POLL_SECONDS = 2.0
LOCK_SECONDS = 60.0
_BLOCKING = """SELECT coalesce(nullif(a.application_name, ''), a.usename, 'unknown'), b.pid
FROM unnest(pg_blocking_pids(%s)) AS b (pid) LEFT JOIN pg_stat_activity AS a USING (pid) ORDER BY b.pid"""


@contextmanager
def report_lock_waits(connect: Callable[[], psycopg.Connection[Row]], transaction: Transaction) -> Iterator[None]:
    """Logs one warning if a statement waits for a lock. Raises `TablesLocked` after a minute."""
    own = transaction.sql(_OWN)
    ((pid,),) = own.limit_waiting(lock_timeout=f"{round(LOCK_SECONDS * 1000)}ms")
    over, holders = threading.Event(), list[str]()

    def watch() -> None:
        while not over.wait(POLL_SECONDS) and not holders:
            holders.extend(_blocking(connect, pid))
            if holders and not over.is_set():
                who = ", ".join(holders)
                _log.warning("Waiting to create or upgrade tables of run %s: locked by %s", transaction.run_id, who)

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
    """Returns the sessions that block a session; none if there is none or the query fails."""
    try:
        with connect() as connection:
            return [f"{name} (pid {holder})" for name, holder in connection.execute(_BLOCKING, (pid,)).fetchall()]
    except (psycopg.Error, TickLakeError) as error:
        _log.debug("Could not find the sessions that block session %s: %s", pid, error)
        return []
