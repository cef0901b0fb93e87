"""PostgreSQL behind PgBouncer, which gives each transaction whichever session is free."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from ticklake import BatchInfo, Database
from ticklake.topics import Run

pytestmark = pytest.mark.skipif(shutil.which("pgbouncer") is None, reason="needs pgbouncer (apt-get install pgbouncer)")
SESSIONS = 2


@pytest.fixture(scope="module", params=["transaction", "session"])
def bouncer_url(request: pytest.FixtureRequest, postgres_url: str) -> Iterator[str]:
    """On a free port of this machine, in front of the tests' own server."""
    folder = Path(tempfile.mkdtemp(prefix="tl-bouncer-"))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with psycopg.connect(postgres_url) as connection:
        info = connection.info
        owner = pwd.getpwuid(Path(info.host).stat().st_uid).pw_name
        target = f"host={info.host} port={info.port} user={info.user} dbname={info.dbname}"
        user = info.user
    (folder / "users").write_text(f'"{user}" ""\n')
    sessions = SESSIONS if request.param == "transaction" else 30
    (folder / "pgbouncer.ini").write_text(
        f"[databases]\ntest = {target}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\n"
        f"auth_file = {folder / 'users'}\npool_mode = {request.param}\ndefault_pool_size = {sessions}\n"
        f"unix_socket_dir =\nlogfile = {folder / 'log'}\nmax_client_conn = 200\n"
    )
    folder.chmod(0o777)
    for file in folder.iterdir():
        file.chmod(0o666)
    as_owner = ["-u", owner] if os.geteuid() == 0 else []  # it refuses to run as root
    command = ["pgbouncer", "-q", *as_owner, str(folder / "pgbouncer.ini")]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        url = f"postgresql://{user}@127.0.0.1:{port}/test"
        _wait_for(url, process)
        yield url
    finally:
        process.terminate()
        process.wait(30)
        shutil.rmtree(folder)


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(300):
        assert process.poll() is None, "pgbouncer has ended"
        try:
            psycopg.connect(url, connect_timeout=2).close()
        except psycopg.OperationalError:
            threading.Event().wait(0.1)
        else:
            return
    raise AssertionError("pgbouncer does not answer")


def new_run(database: Database) -> Run:
    return database.run(f"20251014-143025-{uuid4().hex[:8]}")


def ticks(run: Run) -> list[int]:
    return [one.opened().payload.tick_start for one in run.browse("t", limit=10_000)]  # type: ignore[union-attr]


def test_runs_that_share_sessions_keep_apart(bouncer_url: str) -> None:
    with Database(bouncer_url) as database:
        runs = [new_run(database) for _ in range(3)]
        problems: list[BaseException] = []

        def send(run: Run, first: int) -> None:
            try:
                with run.writer("t") as writer, run.reader("t", group="g") as reader:
                    for number in range(first, first + 40):
                        writer.send(BatchInfo(tick_start=number))
                        message = reader.poll(10)
                        assert message is not None
                        assert message.payload.tick_start == number  # type: ignore[attr-defined]
                        assert reader.ack(message)
            except BaseException as error:
                problems.append(error)

        threads = [threading.Thread(target=send, args=(run, 1000 * place)) for place, run in enumerate(runs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not problems, problems
        for place, run in enumerate(runs):
            assert ticks(run) == list(range(1000 * place, 1000 * place + 40))


def test_a_session_is_given_back_as_it_was(bouncer_url: str) -> None:
    with Database(bouncer_url) as database:
        run = new_run(database)
        run.writer("t").send(BatchInfo(tick_start=1))
        assert ticks(run) == [1]
        with psycopg.connect(bouncer_url, autocommit=True, prepare_threshold=None) as other:
            for _ in range(2 * SESSIONS):
                assert "SIM_" not in str(other.execute("SHOW search_path").fetchone())
                assert other.execute("SHOW synchronous_commit").fetchone() == ("on",)
                assert other.execute("SELECT count(*) FROM pg_listening_channels()").fetchone() == (0,)
                assert other.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)


def test_statements_that_are_repeated_often_work(bouncer_url: str) -> None:
    with Database(bouncer_url, max_pool_size=4) as database:
        run = new_run(database)
        for _ in range(20):
            with run.reading() as one, run.transaction() as two:
                assert one.execute("SELECT :x::int", {"x": 1}) == two.execute("SELECT :x::int", {"x": 1})


def test_a_waiting_reader_gets_what_is_sent(bouncer_url: str, eventually: Callable[..., None]) -> None:
    with Database(bouncer_url) as database:
        run = new_run(database)
        found: list[object] = []
        with run.reader("t", group="g") as reader, run.writer("t") as writer:
            waiting = threading.Thread(target=lambda: found.append(reader.receive()))
            waiting.start()
            eventually(lambda: reader._listener is not None)
            writer.send(BatchInfo(tick_start=7))
            waiting.join(30)
        assert len(found) == 1


def test_what_a_transaction_sets_does_not_stay_in_a_shared_session(bouncer_url: str) -> None:
    with Database(bouncer_url) as database:
        run = new_run(database)
        for _ in range(2 * SESSIONS):
            with run.transaction() as transaction:
                transaction.execute_script("SET statement_timeout = '70s'; SET ROLE pg_monitor; LISTEN something")
        with psycopg.connect(bouncer_url, autocommit=True, prepare_threshold=None) as other:
            for _ in range(2 * SESSIONS):
                assert other.execute("SHOW statement_timeout").fetchone() == ("0",)
                assert other.execute("SELECT current_user = session_user").fetchone() == (True,)
                assert other.execute("SELECT count(*) FROM pg_listening_channels()").fetchone() == (0,)
