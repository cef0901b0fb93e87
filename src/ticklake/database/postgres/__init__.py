"""PostgreSQL: one schema per run, a pool of connections, wake-ups by LISTEN and NOTIFY."""

from __future__ import annotations

from ticklake.database.postgres.backend import PostgresBackend

__all__ = [
    "PostgresBackend",
]
