"""`run` and `config check` find everything that would go wrong, before anything starts."""

from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from click.testing import CliRunner, Result

from ticklake.cli import cli
from ticklake.config import load
from ticklake.config.templates import STARTER
from ticklake.node import preflight

COMMANDS = [("config", "check"), ("run",)]


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    file = tmp_path / "ticklake.conf"
    file.write_text(STARTER.read_text(encoding="utf-8"), encoding="utf-8")
    return file


def change(conf: Path, old: str, new: str) -> None:
    text = conf.read_text(encoding="utf-8")
    assert old in text
    conf.write_text(text.replace(old, new), encoding="utf-8")


def invoke(command: tuple[str, ...], conf: Path) -> Result:
    return CliRunner().invoke(cli, [*command, str(conf)])


def errors(result: Result) -> str:
    return result.output + str(result.exception)


@pytest.mark.parametrize("command", COMMANDS)
def test_all_problems_are_listed_at_once(
    command: tuple[str, ...], conf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nope"))
    (tmp_path / "file").write_text("")
    change(conf, "path = data/lake", "path = file/lake")
    change(conf, "path = data/storage", "path = file")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        change(conf, "resources {\n  # For", f"node {{ http {{ port = {port} }} }}\nresources {{\n  # For")
        result = invoke(command, conf)
    assert result.exit_code == 1
    text = errors(result)
    assert "resources.lake.path" in text
    assert "resources.tick-storage.path" in text
    assert f"JAVA_HOME is {tmp_path / 'nope'}, which has no bin/java" in text
    assert f"127.0.0.1 port {port}: Address already in use" in text
    assert {path.name for path in tmp_path.iterdir()} == {"file", "ticklake.conf"}, "nothing was created"


@pytest.fixture(scope="module")
def server(own_postgres: Any) -> Any:
    """A server with a user who needs a password."""
    own_postgres.psql("CREATE ROLE careful LOGIN PASSWORD 'right';")
    hba = Path(own_postgres.psql("SHOW hba_file;").splitlines()[2].strip())
    hba.write_text(f"local all careful scram-sha-256\n{hba.read_text()}")
    own_postgres.psql("SELECT pg_reload_conf();")
    with suppress(psycopg.OperationalError):  # the server reads the file some time after the reload
        while True:
            psycopg.connect(own_postgres.get_uri(), user="careful").close()
    return own_postgres


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("postgresql:///nowhere?host={host}&user=postgres", 'database "nowhere" does not exist'),
        ("postgresql:///postgres?host={host}&user=nobody", 'role "nobody" does not exist'),
        ("postgresql:///postgres?host={host}&user=careful", "authentication failed"),
    ],
)
def test_a_server_that_refuses_is_a_mistake_and_said_once(
    command: tuple[str, ...], conf: Path, server: Any, url: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "wrong")
    host = quote(str(server.get_uri()).partition("host=")[2])
    change(conf, '"sqlite:///data/database"', f'"{url.format(host=host)}", password = ${{SECRET}}')
    result = invoke(command, conf)
    assert result.exit_code == 1
    assert errors(result).count(reason) == 1
    assert "refuses the connection" in errors(result)


def test_a_server_that_is_away_is_waited_for(conf: Path, tmp_path: Path) -> None:
    change(conf, "sqlite:///data/database", f"postgresql:///x?host={quote(str(tmp_path))}")
    result = invoke(("config", "check"), conf)
    assert result.exit_code == 0, result.output
    assert "does not answer" in result.output
    assert "The node starts and waits for it." in result.output


def test_a_check_that_takes_too_long_is_left_out(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:  # accepts, and never says a word
        change(conf, "sqlite:///data/database", f"postgresql://127.0.0.1:{mute.getsockname()[1]}/x")
        change(conf, 'master = "local[*]"', 'master = "sc://host:15002"')  # asks for no Java, which may be slow, too
        monkeypatch.setattr(preflight, "SECONDS", 1)
        report = preflight.examine(load(conf))
    assert report.problems == []
    (note,) = report.notes
    assert note.startswith("The check of database postgresql://127.0.0.1") and note.endswith("longer than 1 seconds.")


@pytest.mark.parametrize("mute_first", [True, False])
def test_a_database_that_never_answers_hides_no_problem_of_another(
    conf: Path, server: Any, mute_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = quote(str(server.get_uri()).partition("host=")[2])
    refusing = f"postgresql:///nowhere?host={host}&user=postgres"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        mute = f"postgresql://127.0.0.1:{silent.getsockname()[1]}/x"
        first, second = (mute, refusing) if mute_first else (refusing, mute)
        change(conf, "sqlite:///data/database", first)
        change(conf, "resources {\n  # For", f'resources {{\n  other {{ class = Database, url = "{second}" }}\n  # For')
        monkeypatch.setattr(preflight, "SECONDS", 2)
        report = preflight.examine(load(conf))
    assert [one for one in report.problems if 'database "nowhere" does not exist' in str(one)]


def test_indexers_without_a_metadata_indexer_are_noted(conf: Path) -> None:
    change(conf, "metadata-indexer {", "metadata-indexer {\n    class = DummyIndexer")
    change(conf, "metadata-in = ", "topic = ")
    notes = preflight.examine(load(conf)).notes
    assert len(notes) == 1
    assert "environment-indexer" in notes[0] and "organism-indexer" in notes[0]
    assert "Add a metadata-indexer" in notes[0]


def test_a_node_without_spark_needs_no_java(conf: Path, tmp_path: Path) -> None:
    change(conf, 'master = "local[*]"', 'master = "sc://host:15002"')
    assert preflight.examine(load(conf), {"JAVA_HOME": str(tmp_path)}).problems == []


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 'openjdk version \"11.0.2\"' >&2", "is Java 11"),
        ("echo hello", "does not print its version"),
        (None, "found none"),
    ],
)
def test_java_must_be_new_enough(conf: Path, tmp_path: Path, script: str | None, reason: str) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    if script is not None:
        (folder / "java").write_text(f"#!/bin/sh\n{script}\n")
        (folder / "java").chmod(0o755)
    (problem,) = preflight.examine(load(conf), {"PATH": str(folder)}).problems
    assert reason in str(problem)
