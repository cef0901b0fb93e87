"""A database for tests that look at all runs of a database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import psycopg


@contextmanager
def apart(url: str) -> Iterator[str]:
    """A database without the runs of other tests: some are newer, and some cannot be read."""
    if url.startswith("sqlite"):
        yield url
        return
    name = f"apart_{uuid4().hex[:8]}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")  # type: ignore[call-overload]
        yield url.replace("/postgres?", f"/{name}?")
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")  # type: ignore[call-overload]
