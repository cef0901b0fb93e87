"""Versions of the tables: an old database becomes what a fresh one is, and keeps what it holds."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import apsw
import psycopg
import pytest
from click.testing import CliRunner

from ticklake import Database
from ticklake.cli import cli
from ticklake.cli.upkeep.db import PACKAGES
from ticklake.coordination.overview import recorded_gaps
from ticklake.database import Schema, open_backend
from ticklake.database.names import schema_name
from ticklake.database.statements import migrations, statements
from ticklake.database.versions import creation_script, package_versions, upgrade, upgrade_script
from ticklake.errors import SchemaOutdated, SchemaTooNew

FIRST = Path(__file__).parent / "first_version"
FIRST_RUN = "20251014-143025-550e8400"

# Everything that makes a schema, without the order in which columns were added.
POSTGRES_SHAPE = """
SELECT 'column', table_name, concat_ws(' ', column_name, data_type, collation_name, is_nullable, column_default,
       identity_generation, generation_expression) FROM information_schema.columns WHERE table_schema = %(schema)s
UNION ALL SELECT 'index', tablename, indexdef FROM pg_indexes WHERE schemaname = %(schema)s
UNION ALL SELECT 'constraint', conrelid::regclass::text, pg_get_constraintdef(oid) FROM pg_constraint
          WHERE connamespace = %(schema)s::regnamespace
UNION ALL SELECT 'function', proname, pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = %(schema)s::regnamespace
UNION ALL SELECT 'trigger', tgname, pg_get_triggerdef(t.oid) FROM pg_trigger t JOIN pg_class c ON c.oid = tgrelid
          WHERE relnamespace = %(schema)s::regnamespace AND NOT tgisinternal
"""
SQLITE_SHAPE = """
SELECT 'column', m.name, concat_ws(' ', c.name, c.type, c."notnull", c.dflt_value, c.pk, c.hidden)
FROM sqlite_schema m JOIN pragma_table_xinfo(m.name) c WHERE m.type = 'table'
UNION ALL SELECT type, tbl_name, sql FROM sqlite_schema WHERE type != 'table' AND sql IS NOT NULL
UNION ALL SELECT 'index', m.name, concat_ws(' ', i.name, i."unique", i.origin, i.partial)
FROM sqlite_schema m JOIN pragma_index_list(m.name) i WHERE m.type = 'table'
"""


def new_run() -> str:
    return f"20251014-143025-{uuid4().hex[:8]}"


def execute(url: str, run_id: str, script: str) -> list[tuple]:
    """As a person would: with another client, not through TickLake."""
    if url.startswith("sqlite"):
        folder = Path(url.removeprefix("sqlite:///"))
        folder.mkdir(exist_ok=True)
        connection = apsw.Connection(str(folder / f"{schema_name(run_id)}.sqlite"))
        try:
            return connection.execute(script).fetchall()
        finally:
            connection.close()
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(script)
        return cursor.fetchall() if cursor.description else []


def shape(url: str, run_id: str) -> list[tuple]:
    """What the tables are, in words that two runs share."""
    name = schema_name(run_id)
    query = SQLITE_SHAPE if url.startswith("sqlite") else POSTGRES_SHAPE.replace("%(schema)s", f"'\"{name}\"'")
    query = re.sub(r"(table_schema|schemaname) = '\"(\w+)\"'", r"\1 = '\2'", query)
    return sorted(tuple(str(part).replace(name, "SCHEMA") for part in row) for row in execute(url, run_id, query))


@pytest.fixture
def schema_of(database_url: str) -> Callable[[str], Schema]:
    backend = open_backend(database_url)
    yield backend.schema
    backend.close()


@pytest.fixture
def fresh(schema_of: Callable[[str], Schema]) -> str:
    """A run made by this version, with all that any part of it needs."""
    run_id = new_run()
    for package in PACKAGES:
        schema_of(run_id).prepare(package)
    return run_id


@pytest.fixture
def old(database_url: str) -> str:
    """A run as the first version left it, and the newest run, since the doctor does not examine all of them."""
    run_id = f"99991231-235959-{uuid4().hex[:8]}"
    script = (FIRST / ("sqlite.sql" if database_url.startswith("sqlite") else "postgres.sql")).read_text("utf-8")
    script = script.replace(FIRST_RUN, run_id).replace(schema_name(FIRST_RUN), schema_name(run_id))
    execute(database_url, run_id, script)
    return run_id


def test_a_database_of_the_first_version_becomes_what_a_fresh_one_is(database_url, schema_of, old, fresh):
    upgrade(schema_of(old))
    schema_of(old).prepare("ticklake.topics.removed")  # which the first version did not have
    assert shape(database_url, old) == shape(database_url, fresh)
    assert {one.state for one in package_versions(schema_of(old))} == {"current"}


def test_what_the_first_version_stored_is_delivered_before_what_comes_later(database_url, old, batch):
    with Database(database_url) as database:
        run = database.run(old)
        with run.writer("batch-topic") as writer:
            writer.send(batch(8))
        with run.reader("batch-topic", group="g") as reader:
            assert [reader.poll(5).payload for _ in range(2)] == [batch(7), batch(8)]


LOOKS: dict[str, list[str]] = {
    "runs": [],
    "status": ["{run}"],
    "top": ["{run}", "--once"],
    "groups": ["--run={run}"],
    "topics": ["--run={run}"],
    "topics tail": ["batch-topic", "--run={run}"],
    "claims": ["--run={run}"],
    "dead-letters list": ["--run={run}"],
    "groups release": ["batch-topic", "g", "--run={run}"],
    "topics prune": ["batch-topic", "--max-count=1", "--dry-run", "--run={run}"],
    "gaps": ["{run}", "--storage={storage}", "--lake={lake}"],
    "verify": ["{run}", "--storage={storage}", "--lake={lake}"],
    "reconcile": ["{run}", "--storage={storage}", "--lake={lake}"],
    "doctor": [],
}


@pytest.mark.parametrize("command", LOOKS)
def test_a_look_at_tables_of_an_older_version_changes_nothing_and_says_what_to_do(
    database_url, old, maker, schema_of, command
):
    """An older TickLake may still be at work on them."""
    maker.run_id = old
    maker.metadata()
    maker.batch(0, 9)
    maker.lake_folder.mkdir()
    before = shape(database_url, old), package_versions(schema_of(old))
    places = {"run": old, "storage": maker.storage.url, "lake": maker.lake_folder}
    words = [*command.split(), *(part.format(**places) for part in LOOKS[command]), f"--database={database_url}"]
    done = CliRunner().invoke(cli, words, env={"COLUMNS": "300"})
    assert (shape(database_url, old), package_versions(schema_of(old))) == before
    told = done.output + str(done.exception)
    assert "ticklake db upgrade" in told, told


def test_a_look_at_a_run_that_is_in_use_here_sees_what_its_users_made_of_it(database_url, old):
    with Database(database_url) as database:
        look = database.run(old, create=False)
        with pytest.raises(SchemaOutdated, match="ticklake db upgrade"):
            look.topics()
        with database.run(old).reader("batch-topic", group="g"):
            assert [one.topic for one in look.topics()] == ["batch-topic"]


def test_the_sql_for_others_makes_what_we_make(database_url, schema_of, fresh):
    run_id = new_run()
    execute(database_url, run_id, creation_script(schema_of(run_id), PACKAGES))
    assert shape(database_url, run_id) == shape(database_url, fresh)
    assert upgrade(schema_of(run_id)) == []


def test_the_sql_for_others_is_run_as_it_is_printed_by_the_database_s_own_client(database_url, fresh, tmp_path):
    """Also on a server whose transactions are of another isolation level unless they say otherwise."""
    run_id = new_run()
    script = CliRunner().invoke(cli, ["db", "sql", "--database", database_url, "--run", run_id]).stdout
    assert script.rstrip().endswith("COMMIT;")
    sqlite = database_url.startswith("sqlite")
    (tmp_path / "db").mkdir(exist_ok=True)
    file = str(tmp_path / "db" / f"{schema_name(run_id)}.sqlite")
    client = ["sqlite3", "-bail", file] if sqlite else ["psql", "-qX", "-v", "ON_ERROR_STOP=1", database_url]
    if shutil.which(client[0]) is None:
        pytest.skip(f"no {client[0]} here")
    settings = {"PGOPTIONS": "-c default_transaction_isolation=serializable"}
    watched = script if sqlite else script.replace("COMMIT;", "SHOW transaction_isolation; COMMIT;")
    done = subprocess.run(client, input=watched, env=os.environ | settings, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert sqlite or "read committed" in done.stdout
    assert shape(database_url, run_id) == shape(database_url, fresh)
    again = subprocess.run(client, input=script, env=os.environ | settings, capture_output=True, text=True, check=False)
    assert again.returncode != 0
    assert shape(database_url, run_id) == shape(database_url, fresh)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Callable[..., str]:
    """A package of somebody's own whose tables have as many versions as a test wants."""
    name = f"shop_{uuid4().hex[:8]}"
    monkeypatch.syspath_prepend(tmp_path / "packages")
    steps = ["CREATE TABLE orders (id integer PRIMARY KEY);", "ALTER TABLE orders ADD COLUMN price integer DEFAULT 7;"]

    def write(versions: int) -> str:
        for dialect in ("sqlite", "postgres"):
            folder = tmp_path / "packages" / name / "sql" / dialect / "schema"
            folder.mkdir(parents=True, exist_ok=True)
            (tmp_path / "packages" / name / "__init__.py").touch()
            for number, step in enumerate(steps, start=1):
                file = folder / f"{number:03d}_shop.sql"
                file.write_text(step) if number <= versions else file.unlink(missing_ok=True)
        importlib.invalidate_caches()
        migrations.cache_clear()
        statements.cache_clear()
        return name

    return write


@pytest.fixture
def reopened(database_url: str):
    """The same run in a new process, as far as the tables are concerned."""
    backends = []

    def reopen(run_id: str) -> Schema:
        backends.append(open_backend(database_url))
        return backends[-1].schema(run_id)

    yield reopen
    for backend in backends:
        backend.close()


def test_an_upgrade_keeps_the_data_and_is_applied_at_the_first_use(database_url, reopened, shop):
    run_id = new_run()
    schema = reopened(run_id)
    schema.prepare(shop(1))
    with schema.transaction() as transaction:
        transaction.execute_script("INSERT INTO orders (id) VALUES (42)")
    package = shop(2)
    assert [one[2:] for one in package_versions(reopened(run_id)) if one.package == package] == [(1, 2)]
    schema = reopened(run_id)
    schema.prepare(package)
    with schema.reading() as transaction:
        assert transaction.execute("SELECT id, price FROM orders", {}) == [(42, 7)]


def test_an_upgrade_can_be_done_by_hand_with_the_sql_that_is_printed(database_url, reopened, shop):
    run_id = new_run()
    reopened(run_id).prepare(shop(1))
    package = shop(2)
    script = upgrade_script(reopened(run_id))
    assert f"-- {package}, version 2\nALTER TABLE orders" in script
    execute(database_url, run_id, script)
    assert [one.state for one in package_versions(reopened(run_id))] == ["current"]
    assert upgrade_script(reopened(run_id)) == ""


def test_a_newer_version_is_refused_and_named(reopened, shop):
    run_id = new_run()
    reopened(run_id).prepare(shop(2))
    package = shop(1)
    for act in (upgrade, lambda schema: schema.prepare(package)):
        with pytest.raises(
            SchemaTooNew, match=rf"{package} in run '{run_id}' have version 2, but this TickLake knows 1"
        ):
            act(reopened(run_id))


def db(*arguments: str):
    return CliRunner().invoke(cli, ["db", *arguments], catch_exceptions=False, env={"COLUMNS": "200"})


def test_the_commands_show_print_and_upgrade(database_url, reopened, shop):
    run_id = new_run()
    reopened(run_id).prepare(shop(1))
    where = ("--database", database_url, "--run", run_id)
    assert db("status", *where).exit_code == 0
    assert db("upgrade", *where).stdout == "Everything is up to date.\n"
    assert db("sql", *where).stdout == "-- Everything is up to date.\n"
    package = shop(2)
    status = db("status", *where)
    assert (status.exit_code, "behind" in status.stdout) == (1, True)
    assert f"{package}, version 2" in db("sql", *where).stdout
    assert db("upgrade", *where).stdout == f"{run_id}: {package} from version 1 to 2\n"
    assert '"state": "current"' in db("status", *where, "--json").stdout


def test_a_package_that_is_not_installed_here_is_shown_as_such(reopened, shop, tmp_path):
    run_id = new_run()
    package = shop(1)
    reopened(run_id).prepare(package)
    (tmp_path / "packages" / package).rename(tmp_path / "elsewhere")
    with reopened(run_id).transaction() as transaction:
        transaction.execute_script("UPDATE schema_versions SET package = 'no_such_shop.tables'")
    assert [one.state for one in package_versions(reopened(run_id))] == ["not installed"]
    assert upgrade(reopened(run_id)) == []


def test_a_look_at_current_tables_waits_for_no_writer(database_url, fresh):
    with Database(database_url) as writing, Database(database_url) as looking:
        writing.run(fresh).topics()
        with writing.run(fresh).transaction() as transaction:
            transaction.sql("ticklake.database").record_version(package="somebody.elses", version=1)
            look = looking.run(fresh, create=False)
            assert (look.topics(), look.groups.list(), look.claims.list(), recorded_gaps(look)) == ([], [], [], [])
