"""A password and a token, given to every command: no output, no error and no log repeats them."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from click.testing import CliRunner

from ticklake import BatchInfo, Database
from ticklake.cli import cli

RUN, PASSWORD, TOKEN = "20251014-143025-550e8400", "hunter2@and/more", "a-token-that-nobody-may-see"
CONFIG = """
node {{ directory = {root}/node }}
resources {{
  index-database {{ class = Database, url = ${{DATABASE_URL}} }}
  batch-topic    {{ class = Topic, database = index-database }}
  tick-storage   {{ class = Storage, path = {root}/storage }}
  tick-queue     {{ class = Queue, max_ticks = 20 }}
}}
services {{
  simulation {{ options {{ shape = [16, 16], organisms = 5 }} }}
  persistence-service {{ resources {{ batch-out = "topic-write:batch-topic" }} }}
}}
"""
WITH_CONFIG = [
    ["config", "check", "CONFIG"],
    ["config", "show", "CONFIG", "--origin"],
    ["config", "show", "CONFIG", "--json"],
    ["doctor", "--config", "CONFIG"],
    ["doctor", "--config", "CONFIG", "--json"],
    ["top", "--config", "CONFIG", "--once"],
]
WITH_DATABASE = [
    ["doctor", "--database", "URL"],
    ["runs", "--database", "URL", "--json"],
    ["status", RUN, "--database", "URL"],
    ["top", RUN, "--database", "URL", "--once"],
    ["topics", "tail", "t", "--run", RUN, "--database", "URL"],
    ["topics", "tail", "t", "--run", "nowhere", "--database", "URL"],
    ["dead-letters", "list", "--run", RUN, "--database", "URL"],
    ["claims", "release", "--run", RUN, "--database", "URL", "--stuck"],
    ["groups", "reset", "t", "nobody", "--to", "end", "--run", RUN, "--database", "URL"],
    ["db", "status", "--database", "URL"],
    ["db", "sql", "--run", RUN, "--database", "URL"],
]


@pytest.fixture
def secret_url(postgres_url: str) -> str:
    url = postgres_url.replace("postgres:@", f"postgres:{quote(PASSWORD, safe='@')}@")
    assert url != postgres_url
    return url


def is_told(text: str) -> bool:
    return any(secret in text for secret in (PASSWORD, PASSWORD.replace("/", "%2F"), "hunter2", "and/more", TOKEN))


@pytest.mark.warns(".*")
@pytest.mark.parametrize("command", [*WITH_CONFIG, *WITH_DATABASE], ids=" ".join)
def test_no_command_repeats_them(
    tmp_path: Path,
    secret_url: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    command: list[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    config = tmp_path / "node.conf"
    config.write_text(CONFIG.format(root=tmp_path))
    for name, value in {"DATABASE_URL": secret_url, "TICKLAKE_TOKEN": TOKEN}.items():
        monkeypatch.setenv(name, value)
    with Database(secret_url) as database, database.run(RUN).writer("t") as writer:
        writer.send(BatchInfo(storage_key="k"))
    given = {"CONFIG": str(config), "URL": secret_url}
    done = CliRunner().invoke(cli, ["-vv", *(given.get(word, word) for word in command)])
    assert not is_told(done.output + str(done.exception) + caplog.text)


NOBODY = "postgresql://ann:hunter2@127.0.0.1:1/db?connect_timeout=1"


@pytest.mark.parametrize(
    "arguments",
    [
        ["-vv", "--log-format", "json", "topics", "tail", "t", "--run", RUN, "--database", NOBODY],
        pytest.param(["-vv", "doctor", "--database", NOBODY], marks=pytest.mark.slow),
        ["-vv", "topics", "tail", "t", "--run", RUN, "--database", "mysql://ann:hunter2@h/db"],
        ["-vv", "topics", "tail", "t", "--run", RUN, "--database", "postgresql://ann:hunter2@[/db"],
        ["-vv", "topics", "tail", "t", "--run", RUN, "--database", "postgresql://h/db?password=hunter2&sslmode=no"],
        ["-vv", "topics", "tail", "t", "--run", RUN, "--database", "host=h password=hunter2"],
    ],
    ids=["unreachable", "doctor", "unknown", "no url", "query", "words"],
)
def test_no_error_of_a_connection_repeats_them(tmp_path: Path, arguments: list[str]) -> None:
    command = [sys.executable, "-c", "from ticklake.cli import main; main()", *arguments]
    environment = os.environ | {"TICKLAKE_TOKEN": TOKEN}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    assert done.returncode
    assert "Traceback" not in done.stderr
    assert not is_told(done.stdout + done.stderr)
