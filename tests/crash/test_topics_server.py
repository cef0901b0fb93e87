"""A PostgreSQL server that stops, comes back, and turns read-only under readers and writers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pipeline import Server

from ticklake import BatchInfo, Database, Run
from ticklake.consumer import IdempotentConsumer
from ticklake.database import Transaction
from ticklake.database.postgres import backend as postgres
from ticklake.database.retry import retry_while_unavailable
from ticklake.errors import DatabaseUnavailable
from ticklake.topics import reader
from ticklake.topics.envelope import client_clock_ms, wrap_all

RUN_ID = "20251014-143025-0000beef"


@pytest.fixture(scope="module")
def server(own_postgres: Any) -> Any:
    return own_postgres


class Traffic:
    """One thread sends, one reads, as fast as they can, until told to stop. What fails is done again."""

    def __init__(self, database: Database, topic: str, patience: float = 60) -> None:
        run = database.run(RUN_ID)
        self._run, self._topic = run, topic
        self._writer = run.writer(topic, patience=patience)
        self.reader = run.reader(topic, group="g", claim_timeout=5)
        self._stop, self._all_sent = threading.Event(), threading.Event()
        self.sent: list[str] = []
        self.acked: list[str] = []
        self.gave_up: list[str] = []
        self._threads = [threading.Thread(target=self._send), threading.Thread(target=self._read)]
        for thread in self._threads:
            thread.start()

    def _send(self) -> None:
        while not self._stop.is_set():
            envelopes = wrap_all([BatchInfo(tick_start=len(self.sent))], client_clock_ms())
            self._insist("send", lambda envelopes=envelopes: self._writer.forward(envelopes))
            self.sent.append(envelopes[0].message_id)
        self._all_sent.set()

    def _read(self) -> None:
        # Until the database says so: an answer can get lost, and a crash undoes the last acks, which come again.
        while not self._all_sent.is_set() or self._insist("look", self._lag):
            messages = self.reader.poll_many(32, 0.5)
            accepted = self._insist("ack", lambda messages=messages: self.reader.ack_many(messages))
            self.acked += [message.id for message, mine in zip(messages, accepted, strict=True) if mine]

    def _lag(self) -> int:
        return sum(group.lag for group in self._run.groups.list(self._topic))

    def _insist(self, what: str, act: Callable[[], Any]) -> Any:
        while True:
            try:
                return act()
            except DatabaseUnavailable:
                self.gave_up.append(what)

    def flow(self, eventually: Callable[..., None]) -> None:
        """Wait until messages come through."""
        before = len(self.acked)
        eventually(lambda: len(self.acked) > before + 50)

    def finish(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(120)
            assert not thread.is_alive()
        self.reader.close()


def stop_and_start(server: Any) -> None:
    server.stop()
    server.start()


def crash_and_start(server: Any) -> None:
    Server(server).restart()


@pytest.mark.chaos
@pytest.mark.parametrize("restart", [stop_and_start, crash_and_start])
@pytest.mark.warns("Waiting for the database", "Lost the connection", "STALE_ACK", "STUCK_MESSAGE")
def test_readers_and_writers_survive_a_restart_and_lose_nothing(
    server: Any, eventually: Callable[..., None], restart: Callable[[Any], None]
) -> None:
    topic = restart.__name__
    with Database(server.get_uri()) as database:
        traffic = Traffic(database, topic)
        for _ in range(2):
            traffic.flow(eventually)
            restart(server)
        traffic.flow(eventually)
        traffic.finish()
        # A server that did not stop in time is killed, which undoes acks: some may be there twice.
        assert set(traffic.acked) == set(traffic.sent)
        run = database.run(RUN_ID)
        assert [s.lag for s in run.groups.list(topic)] == [0]
        assert {m.message_id for m in run.browse(topic, limit=1_000_000)} == set(traffic.sent)


@contextmanager
def read_only(server: Any) -> Iterator[None]:
    server.psql("ALTER SYSTEM SET default_transaction_read_only = on;")
    server.psql("SELECT pg_reload_conf();")
    try:
        yield
    finally:
        server.psql("SET default_transaction_read_only = off; ALTER SYSTEM RESET default_transaction_read_only;")
        server.psql("SELECT pg_reload_conf();")


def refuses_writes(run: Run) -> bool:
    """Whether the run's only connection knows that the server is read-only."""
    with run.reading() as connection:
        return connection.execute("SHOW default_transaction_read_only", {}) == [("on",)]


@pytest.mark.chaos
@pytest.mark.warns("Waiting for the database", "Lost the connection", "STALE_ACK", "STUCK_MESSAGE")
def test_a_server_that_turns_read_only_is_waited_for(server: Any, eventually: Callable[..., None]) -> None:
    with Database(server.get_uri()) as database:
        traffic = Traffic(database, "read-only")
        eventually(lambda: len(traffic.acked) > 50)
        with read_only(server):
            eventually(lambda: not traffic.reader.monitor.healthy)
        traffic.flow(eventually)
        traffic.finish()
        assert traffic.gave_up == [], "a caller hears only of what takes longer than a minute"
        assert traffic.reader.monitor.healthy
        assert sorted(traffic.acked) == sorted(traffic.sent)


@pytest.mark.chaos
@pytest.mark.warns("Waiting for the database")
def test_an_ack_that_waits_for_the_server_shows_in_the_health_at_once(
    server: Any, eventually: Callable[..., None]
) -> None:
    with Database(server.get_uri(), max_pool_size=1) as database:
        run = database.run(RUN_ID)
        with run.writer("health") as writer, run.reader("health", group="g") as holder:
            writer.send(BatchInfo(tick_start=1))
            message = holder.receive()
            done: list[bool] = []
            acknowledging = threading.Thread(target=lambda: done.append(holder.ack(message)))
            with read_only(server):
                eventually(lambda: refuses_writes(run))  # a session reads the new setting some time after the reload
                acknowledging.start()
                eventually(lambda: not holder.monitor.healthy, timeout=30)
            acknowledging.join(60)
            assert done == [True]


@pytest.mark.chaos
@pytest.mark.warns("Waiting for the database", "Lost the connection", "STALE_ACK", "STUCK_MESSAGE")
def test_an_outage_longer_than_our_patience_is_an_error_and_everything_goes_on_afterwards(
    server: Any, eventually: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "retry_while_unavailable", partial(retry_while_unavailable, seconds=0.1))
    with Database(server.get_uri()) as database:
        traffic = Traffic(database, "long", patience=0.1)
        eventually(lambda: len(traffic.acked) > 50)
        with read_only(server):
            eventually(lambda: traffic.gave_up.count("send") > 5)
        traffic.flow(eventually)
        traffic.finish()
        assert sorted(traffic.acked) == sorted(traffic.sent)
        assert [s.lag for s in database.run(RUN_ID).groups.list("long")] == [0]


@pytest.mark.chaos
@pytest.mark.warns("Waiting for the database", "Lost the connection")
def test_a_group_that_starts_at_the_end_is_still_there_after_a_crash_and_gets_what_comes_next(server: Any) -> None:
    with Database(server.get_uri()) as database:
        run = database.run(RUN_ID)
        with run.writer("joined") as writer:
            writer.send(BatchInfo(tick_start=1))
            with run.reader("joined", group="g", start="end") as joined:
                Server(server).restart()
                writer.send(BatchInfo(tick_start=2))
                assert joined.receive().payload == BatchInfo(tick_start=2)


@pytest.mark.chaos
def test_who_waits_for_a_connection_has_one_when_the_server_is_back(
    server: Any, eventually: Callable[..., None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(postgres, "POOL_SECONDS", 600)
    caplog.set_level("DEBUG", logger="ticklake.database")
    answers: list[Any] = []
    with Database(server.get_uri()) as database:
        groups = database.run(RUN_ID).groups

        def ask() -> None:
            while not answers:
                with suppress(DatabaseUnavailable):  # from connections that were open
                    answers.append(groups.list("waiting"))

        groups.list("waiting")
        server.stop()
        asking = threading.Thread(target=ask)
        asking.start()
        eventually(lambda: caplog.text.count("Retrying to connect") > 3, timeout=60)
        server.start()
        asking.join(60)
        assert answers == [[]]


@pytest.mark.chaos
@pytest.mark.warns("Consumer g:", "Waiting for the database", "Lost the connection")
def test_a_server_that_restarts_during_the_work_costs_no_attempt_however_often(server: Any) -> None:
    with Database(server.get_uri()) as database:
        run = database.run(RUN_ID)
        with run.writer("restarts") as writer:
            writer.send(BatchInfo(tick_start=1))
        restarts = iter(range(3))

        def work(payload: BatchInfo, tx: Transaction) -> None:
            for _ in restarts:
                server.stop()
                server.start()
                break
            tx.execute("SELECT 1", {})

        options = {"max_delivery_attempts": 1, "retry_delay": 0.0}
        with IdempotentConsumer(run, "restarts", "g", work, **options) as consumer:  # type: ignore[arg-type]
            while run.groups.list("restarts")[0].lag:
                with suppress(DatabaseUnavailable):
                    consumer.process(0.2)
        assert next(restarts, None) is None
        assert run.dead_letters.list() == []


def test_a_server_that_is_not_there_is_a_clear_error(tmp_path: Path) -> None:
    with (
        Database(f"postgresql://someone:secret@/postgres?host={tmp_path}") as database,
        pytest.raises(DatabaseUnavailable, match="does not answer") as caught,
    ):
        database.run(RUN_ID).writer("t")
    assert "secret" not in str(caught.value)
