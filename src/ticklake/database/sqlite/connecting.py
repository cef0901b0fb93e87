"""A new connection to a file, with all settings that SQLite does not store in the file, and its errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import apsw

from ticklake.database.error_kinds import Fault, sqlite_fault, translate
from ticklake.database.errors import DatabaseLocked
from ticklake.database.sqlite import forked_files
from ticklake.database.sqlite.wal import switch_to_wal
from ticklake.errors import TickLakeError

# A checkpoint waits for the disk several times. Four times the default distance makes it rare in claims and acks.
CHECKPOINT_PAGES = 4000


def connect(path: Path, clock: Callable[[], int], lock_seconds: float, *, write: bool) -> apsw.Connection:
    """Opens a connection that waits up to `lock_seconds` for locks of other processes."""
    forked_files.check(path)
    flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if write else 0)
    connection = apsw.Connection(str(path), flags=flags)
    try:
        connection.create_scalar_function("now_ms", lambda *_: clock(), 0)
        connection.set_busy_timeout(int(lock_seconds * 1000))
        # Wait for locks in the kernel instead of polling with growing pauses.
        connection.setlk_timeout(int(lock_seconds * 1000), 0)
        connection.pragma("query_only", not write)
        if write:
            switch_to_wal(connection, lock_seconds)
            connection.wal_autocheckpoint(CHECKPOINT_PAGES)
    except BaseException:
        connection.close()
        raise
    return connection


def translated(error: apsw.Error, path: str, lock_seconds: float) -> TickLakeError:
    """Translates an error of the driver. `lock_seconds` is how long the connection waits for locks."""
    fault = sqlite_fault(getattr(error, "result", 0))
    if fault is Fault.LOCKED:
        return DatabaseLocked(database=path, seconds=lock_seconds)
    return translate(fault, path, str(error) or type(error).__name__)
