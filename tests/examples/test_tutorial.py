"""The tutorial is true: a new user who does what it says gets what it shows."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ticklake.cli import cli

FILES = {
    "population.py": ("python", "class PopulationIndexer"),
    "test_population.py": ("python", "def test_"),
}
# The node's fourth commit (the first is the metadata's) stops in its tracks: so the kill comes in the middle.
FAULT = "lake.commit.before:hold:4"


class Shell:
    """One bash, as the reader's: variables, directory and background jobs last from command to command."""

    _END = "=== end of command"

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._bash = subprocess.Popen(
            ["bash", "--norc"],
            cwd=directory,
            env=os.environ | {"PATH": path} | environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def run(self, command: str) -> tuple[int, str]:
        """The command's exit code and what it printed."""
        assert self._bash.stdin is not None and self._bash.stdout is not None
        self._bash.stdin.write(f"{command}\ncode=$?; echo; echo {self._END} $code\n")
        self._bash.stdin.flush()
        printed: list[str] = []
        for line in self._bash.stdout:
            if line.startswith(self._END):
                return int(line.split()[-1]), "".join(printed)
            printed.append(line)
        raise AssertionError("the shell has ended: " + "".join(printed))

    def close(self) -> None:
        os.killpg(self._bash.pid, signal.SIGKILL)
        self._bash.wait()
        for pipe in (self._bash.stdin, self._bash.stdout):
            assert pipe is not None
            pipe.close()


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path, {"TICKLAKE_FAULT": FAULT, "TICKLAKE_FAULT_MARK": str(tmp_path / "mark")})
    yield shell
    shell.close()


def save(tutorial: Any, directory: Path) -> None:
    """The files that the reader is told to save."""
    for name, block in FILES.items():
        (directory / name).write_text(tutorial.block(*block), encoding="utf-8")


def is_done(shell: Shell) -> bool:
    """The old run is complete, and all its messages are acknowledged."""
    code, printed = shell.run("ticklake verify $RUN")
    return code == 0 and not re.search(r"[1-9][\d,]* not acknowledged", printed)


def test_every_command_and_option_exists(tutorial: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TICKLAKE_STORAGE", "data/storage")
    monkeypatch.setenv("TICKLAKE_LAKE", "data/lake")
    shown = tutorial.shown("ticklake ")
    assert len(shown) >= 12
    for one in shown:
        one.check_usage()


def test_the_indexers_test_passes_without_spark(tutorial: Any, tmp_path: Path) -> None:
    save(tutorial, tmp_path)
    (shown,) = tutorial.shown("python -m pytest")
    environment = os.environ | {"JAVA_HOME": str(tmp_path / "no-java")}
    command = [sys.executable, *shown.command.split()[1:]]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_its_configurations_are_fine(tutorial: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (init,) = tutorial.shown("ticklake init")
    assert CliRunner().invoke(cli, init.command.split()[1:]).output == init.output
    monkeypatch.chdir("node")
    (check,) = tutorial.shown("ticklake config check")
    assert CliRunner().invoke(cli, check.command.split()[1:]).output == check.output
    (edit,) = tutorial.shown("sed ")
    assert edit.command.split("/")[1] in Path("ticklake.conf").read_text()


@pytest.mark.spark
def test_its_indexer_fills_a_table(
    tutorial: Any, maker: Any, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker.metadata()
    maker.batches(1)
    save(tutorial, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TICKLAKE_STORAGE", "storage")
    monkeypatch.setenv("TICKLAKE_LAKE", "lake")
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    monkeypatch.setitem(sys.modules, "population", None)
    monkeypatch.delitem(sys.modules, "population")
    (index,) = (shown for shown in tutorial.shown("ticklake index") if "population:" in shown.command)
    words = index.command.replace("$RUN", maker.run_id).split()[1:]
    result = CliRunner().invoke(cli, words)
    assert (result.exit_code, result.exception) == (0, None), result.output
    assert index.looks_like(result.output)
    rows = sorted(maker.rows("population_data").to_pylist(), key=lambda row: row["tick_number"])
    assert rows == [{"tick_number": tick, "program_id": "p", "alive": 1} for tick in range(100)]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_every_step_does_what_the_page_shows(
    tutorial: Any, shell: Shell, eventually: Callable[..., None], tmp_path: Path
) -> None:
    steps = iter(tutorial.shown()[3:])  # without the set-up, which made the environment that this test runs in
    node = tmp_path / "node"

    def follow(until: str) -> str:
        """Does what the page says, up to this command, and gives what that one prints."""
        for shown in steps:
            code, printed = shell.run(shown.command)
            incomplete = "verdict" in shown.output and "incomplete" in shown.output
            assert code == (1 if incomplete else 0), printed
            assert shown.looks_like(printed), printed
            if shown.command.startswith(until):
                return printed
        raise AssertionError(f"the page has no {until}")

    follow("ticklake init")
    save(tutorial, node)
    configuration = (node / "ticklake.conf").read_text()
    (node / "ticklake.conf").write_text(configuration.replace("max_ticks = 2000", "max_ticks = 300"))
    assert "valid, 7 resources and 9 services." in follow("ticklake config check")
    follow("ticklake run ticklake.conf &")
    eventually((tmp_path / "mark").exists)
    shell.run("unset TICKLAKE_FAULT")
    follow("kill -9")
    follow("ticklake gaps")
    follow("ticklake run ticklake.conf &")
    eventually(lambda: is_done(shell), 300)
    assert "0 missing, 0 duplicated" in follow("ticklake verify $RUN")
    rows, keys = follow("ticklake sql").split()[-2:]
    assert rows == keys
    assert "Everything that was accepted is written" in follow("kill $!")
    assert rows in follow("ticklake index")
    assert "1 passed" in follow("python -m pytest")
    follow("ticklake index")
    follow("ticklake sql")
    assert next(steps, None) is None
