"""What is SQLite's own: pragmas, plans, hints between processes, files that are no databases."""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw
import pytest

from ticklake import BatchInfo, Database
from ticklake.database.names import schema_name
from ticklake.database.statements import statements
from ticklake.errors import (
    DatabaseClosed,
    DatabaseFull,
    DatabaseLocked,
    DatabaseUnusable,
    NestedTransaction,
    ReadingOnly,
    SchemaTooNew,
    TableHidden,
    UnknownDatabase,
)
from ticklake.topics import Run

RUN_ID = "20251014-143025-550e8400"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'db'}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "db" / f"{schema_name(RUN_ID)}.sqlite"


@pytest.fixture
def run(url: str) -> Iterator[Run]:
    with Database(url) as database:
        yield database.run(RUN_ID)


def synchronous(run: Run, *, durable: bool) -> int:
    with run.transaction(durable=durable) as transaction:
        return int(transaction.execute("PRAGMA synchronous", {})[0][0])


def test_a_publish_waits_for_the_disk_and_a_claim_does_not(run: Run) -> None:
    assert synchronous(run, durable=True) == 2  # FULL
    assert synchronous(run, durable=False) == 1  # NORMAL


def test_a_reset_to_a_time_skips_no_message_for_a_part_of_a_millisecond(run: Run) -> None:
    with run.writer("t") as writer, run.reader("t", group="g"):
        writer.send(BatchInfo())
    with run.reading() as view:
        ((stored_ms,),) = view.execute("SELECT created_at FROM topic_messages", {})
    before = datetime.fromtimestamp(stored_ms / 1000, UTC) + timedelta(microseconds=600)
    assert run.groups.reset("t", "g", before, dry_run=True) == 1


def test_a_run_is_one_file_in_wal_mode(run: Run, path: Path) -> None:
    run.writer("t").send(BatchInfo())
    assert path.is_file()
    with run.reading() as view:
        assert view.execute("PRAGMA journal_mode", {}) == [("wal",)]


def test_work_that_makes_its_connection_read_only_stops_nobody_after_it(run: Run) -> None:
    with run.transaction() as transaction:
        transaction.execute("PRAGMA query_only = ON", {})
    run.writer("t").send(BatchInfo())
    with run.reading() as view:
        view.execute("PRAGMA query_only = OFF", {})
    with pytest.raises(ReadingOnly), run.reading() as view:
        view.execute("DELETE FROM topic_messages", {})


FILL = """
    INSERT INTO topic_messages (topic_name, message_id, timestamp, envelope, created_at)
    SELECT 't', 'm' || value, 0, x'', 0 FROM generate_series(1, {count});
    INSERT INTO topic_group_positions VALUES ('t', 'fresh', 0, 0), ('t', 'acked', {count}, 0);
    INSERT INTO topic_consumer_group
        (topic_name, consumer_group, message_id, id, claimed_by, claimed_at, acknowledged_at, lease_until)
    SELECT topic_name, 'acked', message_id, id, 'c', 0, iif(id > 1, 1, NULL), 1e15 FROM topic_messages;
    ANALYZE;
"""
FENCED = ("ack", "extend", "release", "acknowledged")
HOT = ("look", "expire", "available", "fresh", "claim_fresh", "claim_after_reset", "reclaim", "advance", *FENCED)


@pytest.mark.parametrize("script", ["CREATE TEMP TABLE scratch (x int)", "CREATE TEMP VIEW scratch AS SELECT 1"])
def test_what_a_transaction_leaves_in_its_connection_is_gone_after_it(run: Run, script: str) -> None:
    for _ in range(3):
        with run.transaction() as transaction:
            transaction.execute_script(script)
    with run.transaction() as transaction, pytest.raises(DatabaseUnusable, match="no such table"):
        transaction.execute("SELECT * FROM scratch", {})
    with run.writer("t") as writer:
        writer.send(BatchInfo(tick_start=0))
    assert len(run.browse("t")) == 1


def test_an_attached_database_is_gone_after_its_transaction(run: Run, tmp_path: Path) -> None:
    for _ in range(3):
        with run.transaction() as transaction:
            transaction.execute(f"ATTACH '{tmp_path / 'other'}' AS other", {})


def test_a_temporary_table_with_the_name_of_ours_takes_no_messages(run: Run) -> None:
    with run.writer("t") as writer:
        writer.send(BatchInfo(tick_start=0))
        with pytest.raises(TableHidden, match="'Topic_Messages'"), run.transaction() as transaction:
            ((text,),) = transaction.execute("SELECT sql FROM main.sqlite_schema WHERE name = 'topic_messages'", {})
            columns = text[text.index("(") :]
            transaction.execute_script(f"CREATE TEMP TABLE Topic_Messages {columns}")
            writer.send(BatchInfo(tick_start=1), connection=transaction)
        writer.send(BatchInfo(tick_start=2))
    assert len(run.browse("t")) == 2


@pytest.mark.parametrize("count", [1_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_hot_statements_use_their_indexes(run: Run, count: int) -> None:
    """Also with everything acknowledged and one old message still open at the very beginning."""
    values = dict.fromkeys(("topic", "group", "consumer", "message_id", "message_ids"), "1")
    values |= dict.fromkeys(("limit", "lease_ms", "first", "last", "delay_ms", "forgiven", "version", "now"), 1)  # type: ignore[dict-item]
    series = FILL.replace("FROM generate_series(1, {count})", "FROM numbers").replace(
        "INSERT INTO topic_messages", "WITH RECURSIVE numbers(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM"
        " numbers WHERE value < {count}) INSERT INTO topic_messages", 1)  # fmt: skip
    with run.transaction(durable=False) as transaction:
        transaction.execute_script(series.format(count=count))
        for name in HOT:
            text = statements("ticklake.topics", "sqlite")[name]
            plan = [row[3] for row in transaction.execute("EXPLAIN QUERY PLAN " + text, values)]
            scans = [
                step
                for step in plan
                if step.startswith("SCAN") and "json_each" not in step and "CONSTANT ROW" not in step
            ]
            assert not scans, (name, plan)
            sorts = [step for step in plan if "TEMP B-TREE" in step]
            assert not sorts, (name, plan)
            assert name not in FENCED or any("message_id=?" in step for step in plan), (name, plan)


def test_a_look_passes_by_what_is_given_back_for_long(run: Run) -> None:
    """However many there are: whether the clock was set back is one probe."""
    with run.transaction() as transaction:
        look = statements("ticklake.topics", "sqlite")["look"]
        plan = [row[3] for row in transaction.execute("EXPLAIN QUERY PLAN " + look, {"topic": "t", "group": "g"})]
    assert any("idx_topic_group_since (topic_name=? AND consumer_group=? AND since>?)" in step for step in plan), plan


def test_a_lost_hint_costs_at_most_a_second(run: Run) -> None:
    with run.reader("t", group="g") as reader:
        assert reader.poll(0.01) is None
        attempts = reader.monitor.counter("claim_attempts")
        before = attempts.value
        assert reader.poll(2.2) is None
        assert attempts.value - before <= 2, "an idle reader asks the database again and again"
        with run.transaction() as transaction:  # written by hand: nobody sends a hint
            transaction.execute_script(
                "INSERT INTO topic_messages (topic_name, message_id, timestamp, envelope, created_at)"
                " SELECT 't', '1', 0, x'1a0a0a08782f', 0"
            )
            transaction.execute("DELETE FROM topic_messages", {})
            run.writer("t").send(BatchInfo(tick_start=1), connection=transaction)
            transaction._after_commit.clear()
        assert reader.poll(30) is not None


def test_the_socket_of_a_killed_reader_is_cleared_away(run: Run, path: Path) -> None:
    reader = run.reader("t", group="g")
    reader.poll(0.01)
    folder = path.with_name(path.name + "-wake")
    (socket,) = folder.iterdir()
    reader._listener._socket.close()  # type: ignore[union-attr]
    run.writer("t").send(BatchInfo())
    assert not socket.exists()
    reader._listener._socket = os  # type: ignore[union-attr,assignment]
    reader._listener = None


def test_a_closed_reader_leaves_no_socket(run: Run, path: Path) -> None:
    with run.reader("t", group="g") as reader:
        reader.poll(0.01)
    assert list(path.with_name(path.name + "-wake").iterdir()) == []


def test_a_very_deep_folder_is_no_problem_for_hints(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["a-rather-long-folder-name"] * 6)
    with Database(f"sqlite:///{deep}") as database:
        run = database.run(RUN_ID)
        with run.reader("t", group="g") as reader:
            assert reader.poll(0.01) is None
            assert any(deep.glob("*-wake/*"))


def test_waiting_for_oneself_is_refused_at_once(run: Run) -> None:
    with run.writer("t") as writer, run.transaction(), pytest.raises(NestedTransaction, match="connection="):
        writer.send(BatchInfo())


@pytest.mark.warns("is damaged: file is not a database")
def test_a_file_that_is_no_database_is_a_clear_error(url: str, path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"this is no database, it is a text of more than one page" * 100)
    with Database(url) as database:
        with pytest.raises(DatabaseUnusable, match="not a database"):
            database.run(RUN_ID).writer("t")
        assert database.runs() == []


def test_another_runs_file_is_refused(url: str, path: Path, run: Run) -> None:
    run.writer("t").close()
    other = path.with_name(f"{schema_name('other')}.sqlite")
    other.write_bytes(path.read_bytes())
    wal = path.with_name(path.name + "-wal")
    other.with_name(other.name + "-wal").write_bytes(wal.read_bytes())
    with Database(url) as database, pytest.raises(DatabaseUnusable, match="belongs to run"):
        database.run("other").writer("t")


def test_a_newer_schema_is_refused(url: str, run: Run) -> None:
    with run.transaction() as transaction:
        transaction.execute_script("INSERT INTO schema_versions (package, version) VALUES ('ticklake.topics', 99)")
    with Database(url) as database, pytest.raises(SchemaTooNew, match="Upgrade TickLake"):
        database.run(RUN_ID).writer("t")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_a_clear_error(tmp_path: Path) -> None:
    folder = tmp_path / "db"
    folder.mkdir()
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    with Database(f"sqlite:///{folder}") as database, pytest.raises(DatabaseUnusable):
        database.run(RUN_ID).writer("t")


def test_a_read_only_file_is_a_clear_error(url: str, path: Path) -> None:
    with Database(url) as database:
        database.run(RUN_ID).writer("t").send(BatchInfo())
    with path.open("r+b") as file:
        file.seek(18)
        file.write(b"\3")  # a format of the future: SQLite reads it, and writes nothing
    with Database(url) as database, pytest.raises(DatabaseUnusable, match="readonly"):
        database.run(RUN_ID).writer("t").send(BatchInfo())


def test_a_full_disk_refuses_a_message_and_keeps_the_others(run: Run) -> None:
    with run.writer("t") as writer, run.reader("t", group="g") as reader:
        writer.send(BatchInfo(tick_start=1))
        with run.transaction() as transaction:
            ((pages,),) = transaction.execute("PRAGMA page_count", {})
            transaction.execute(f"PRAGMA max_page_count = {pages + 10}", {})
        with pytest.raises(DatabaseFull, match="nothing of this call was stored"):
            writer.send_many([BatchInfo(storage_key="x" * 1000)] * 1000)
        with run.transaction() as transaction:
            transaction.execute("PRAGMA max_page_count = 4294967294", {})
        writer.send(BatchInfo(tick_start=2))
        assert [m.payload.tick_start for m in reader.poll_many(9, 0)] == [1, 2]  # type: ignore[attr-defined]


def test_a_locked_file_is_a_clear_error(run: Run, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ticklake.database.sqlite.run_file.LOCK_SECONDS", 0.1)
    writer = run.writer("t")
    with Database(f"sqlite:///{path.parent}") as other:
        impatient = other.run(RUN_ID).writer("t")
        holder = apsw.Connection(str(path))
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseLocked, match="locked"):
            impatient.send(BatchInfo())
        holder.execute("ROLLBACK")
        holder.close()
        impatient.send(BatchInfo())
    writer.close()


def test_a_closed_database_says_so(url: str) -> None:
    database = Database(url)
    writer = database.run(RUN_ID).writer("t")
    database.close()
    with pytest.raises(DatabaseClosed):
        writer.send(BatchInfo())
    with pytest.raises(DatabaseClosed):
        database.run("other")


@pytest.mark.parametrize("wrong", ["", "sqlite", "sqlite://db", "mysql://x/y", "/some/path"])
def test_an_unknown_database_names_the_known_ones(wrong: str) -> None:
    with pytest.raises(UnknownDatabase, match="sqlite:///DIRECTORY or postgresql://"):
        Database(wrong)


def test_a_send_inside_of_ones_own_transaction_is_refused_at_once_and_holds_up_nobody(run: Run, eventually) -> None:
    """Another thread leads the group commit, and waits for the transaction: it must not wait for itself."""
    with run.writer("t") as writer:
        writer.send(BatchInfo(tick_start=0))
        innocent = threading.Thread(target=writer.send, args=(BatchInfo(tick_start=1),))
        with run.transaction():
            innocent.start()
            eventually(lambda: run.monitor.snapshot()["pool_waiting_connections"] == 1)
            started = time.monotonic()
            with pytest.raises(NestedTransaction, match="connection="):
                writer.send(BatchInfo(tick_start=2))
            assert time.monotonic() - started < 10, "and not after the 30 seconds for which a lock is waited for"
        innocent.join(60)
        assert not innocent.is_alive()
    assert [m.payload.tick_start for stored in run.browse("t") if (m := stored.opened())] == [0, 1]  # type: ignore[attr-defined]


def test_a_transaction_of_ones_own_process_is_not_called_another_program(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ticklake.database.sqlite.run_file.LOCK_SECONDS", 0.1)
    errors: list[BaseException] = []

    def begin() -> None:
        try:
            with run.transaction():
                pass
        except DatabaseLocked as error:
            errors.append(error)

    with run.transaction():
        other = threading.Thread(target=begin)
        other.start()
        other.join(60)
    (error,) = errors
    assert "transaction of this process" in str(error)
