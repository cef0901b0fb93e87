"""A place of the pool is taken by whoever uses it, and by no exception or frame that is left of somebody who did."""

from __future__ import annotations

import gc
import socket
import sys
from collections.abc import Iterator

import psycopg
import pytest

from ticklake.database.postgres.backend import PostgresBackend, PostgresWork
from ticklake.errors import DatabaseUnavailable


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def nowhere() -> Iterator[str]:
    """A port on which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"postgresql://postgres@127.0.0.1:{taken.getsockname()[1]}/x"


def test_a_connection_that_cannot_be_made_takes_no_place(nowhere: str) -> None:
    backend = PostgresBackend(nowhere, max_pool_size=2)
    kept: list[BaseException] = []
    for _ in range(5):
        with pytest.raises(DatabaseUnavailable, match="refused") as raised, PostgresWork(backend):
            raise AssertionError("nobody is there")
        kept.append(raised.value)
        assert backend.pool() == {"active": 0, "idle": 0, "total": 0, "waiting": 0}
    assert isinstance(kept[0].__cause__, psycopg.OperationalError)
    backend.close()


def test_a_server_that_is_back_is_reached_again(
    nowhere: str, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ticklake.database.postgres.backend.RETRY_SECONDS", 0.0)
    backend = PostgresBackend(postgres_url, max_pool_size=2)
    with PostgresWork(backend) as transaction:
        transaction._connection.close()
    connect, attempts = backend._connect, []

    def away_at_first() -> object:
        attempts.append(1)
        return psycopg.Connection.connect(nowhere) if len(attempts) < 20 else connect()

    monkeypatch.setattr(backend.connections, "_connect", away_at_first)
    with PostgresWork(backend) as one, PostgresWork(backend) as two:
        assert one.execute("SELECT 1", {}) == two.execute("SELECT 1", {}) == [(1,)]
    assert backend.pool()["idle"] == 2
    backend.close()


def test_a_pool_is_closed_in_a_few_steps(postgres_url: str) -> None:
    backend = PostgresBackend(postgres_url, max_pool_size=2)
    with PostgresWork(backend) as transaction:
        assert transaction.execute("SELECT 1", {}) == [(1,)]
    calls: list[str] = []
    sys.setprofile(lambda frame, event, _: calls.append(frame.f_code.co_name) if event == "call" else None)
    try:
        backend.close()
    finally:
        sys.setprofile(None)
    assert calls.count("release") <= 2
