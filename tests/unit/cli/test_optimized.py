"""`PYTHONOPTIMIZE=2`: Python drops docstrings and asserts, and the commands still say and do the same."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from ticklake.cli import cli

RUN = "20251014-143025-550e8400"


def every_command(group: click.Group = cli, before: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    context = click.Context(group)
    found: list[tuple[str, ...]] = [before]
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        below = every_command(command, (*before, name)) if isinstance(command, click.Group) else [(*before, name)]
        found += below
    return found


Said = Callable[..., tuple[int, str, str]]


@pytest.fixture
def said(tmp_path: Path) -> Said:
    """What a command says, with docstrings and without."""

    def run(level: str, script: str, *arguments: str) -> tuple[int, str, str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TICKLAKE_")}
        command = [sys.executable, "-c", script, *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, check=False,
            env=environment | {"PYTHONOPTIMIZE": level},
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    return run


MAIN = "from ticklake.cli import main; main()"
# All of the help texts in one process.
HELP = """
import json, sys
from click.testing import CliRunner
from ticklake.cli import cli
from ticklake.cli.help import with_help
with_help(cli)
texts = {" ".join(name): CliRunner().invoke(cli, [*name, "--help"]).output for name in json.loads(sys.argv[1])}
print(json.dumps(texts, indent=1))
"""


def test_help_is_the_same(said: Said) -> None:
    import json

    names = json.dumps(every_command())
    plain, optimized = said("", HELP, names), said("2", HELP, names)
    assert plain[0] == 0, plain[2]
    assert plain == optimized
    assert all(len(text.splitlines()) > 4 for text in json.loads(plain[1]).values())
    assert "Ticks in, tables out" in said("2", MAIN, "--help")[1]


@pytest.mark.parametrize(
    "arguments",
    [
        ("config", "check", "missing.conf"),
        pytest.param(("status", RUN, "--lake", "nowhere"), marks=pytest.mark.slow),
        pytest.param(("topics", "--database", "mysql://host/db"), marks=pytest.mark.slow),
        pytest.param(("index", RUN, "--storage", "s", "--lake", "s3://bucket/lake"), marks=pytest.mark.slow),
        ("sql", "SELECT 1", "--lake", "."),
        ("init", "node"),
        pytest.param(("config", "show"), marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
def test_commands_and_errors_are_the_same(arguments: tuple[str, ...], said: Said, tmp_path: Path) -> None:
    plain = said("", MAIN, *arguments)
    (tmp_path / "node" / "ticklake.conf").unlink(missing_ok=True)
    assert said("2", MAIN, *arguments) == plain
    assert plain[1] or len(plain[2]) > len("Error: ")


def test_a_configuration_is_checked_the_same(said: Said) -> None:
    assert said("2", MAIN, "init", "node")[0] == 0
    assert said("2", MAIN, "config", "check", "node/ticklake.conf")[1].endswith("9 services.\n")
