"""From a database URL to the backend that speaks to it."""

from __future__ import annotations

from pathlib import Path

from ticklake.database.schema import Backend
from ticklake.errors import UnknownDatabase


def open_backend(url: str, *, max_pool_size: int = 10, min_idle: int = 2) -> Backend:
    """`sqlite:///DIRECTORY` (four slashes where it is absolute) or `postgresql://…`; connects on first use."""
    scheme, _, rest = url.partition("://")
    if scheme == "sqlite" and rest.startswith("/") and len(rest) > 1:
        from ticklake.database.sqlite import SqliteBackend

        return SqliteBackend(Path(rest[1:]))
    if scheme in ("postgresql", "postgres"):
        from ticklake.database.postgres import PostgresBackend

        return PostgresBackend(url, max_pool_size=max_pool_size, min_idle=min_idle)
    raise UnknownDatabase(url=url)
