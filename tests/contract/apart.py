"""A database for tests that look at all of its runs."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest


@pytest.fixture
def database_url(database_url: str) -> Iterator[str]:
    """A database without the runs of other tests: some are newer, and some cannot be read."""
    if database_url.startswith("sqlite"):
        yield database_url
        return
    name = f"apart_{uuid4().hex[:8]}"
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")  # type: ignore[call-overload]
        yield database_url.replace("/postgres?", f"/{name}?")
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")  # type: ignore[call-overload]
