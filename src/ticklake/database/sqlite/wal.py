"""Write-ahead logs of SQLite."""

from __future__ import annotations

import time

import apsw


def switch_to_wal(connection: apsw.Connection, seconds: float) -> None:
    """Switches a file to WAL mode. Retries: SQLite ignores its timeout if another process does the same."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            connection.pragma("journal_mode", "WAL")
            return
        except apsw.BusyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.005)
