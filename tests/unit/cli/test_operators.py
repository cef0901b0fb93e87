"""What an operator may get wrong ends with one true line, the right exit code, and nothing half done."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ticklake import BatchInfo, Database
from ticklake.config.templates import write_starter
from ticklake.errors import NotADemo, RunNotFound, StorageNotFound, TopicNotFound

RUN = "20251014-143025-550e8400"


@pytest.fixture
def database(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/db"
    with Database(url) as opened, opened.run(RUN).writer("batch-topic") as writer:
        writer.send(BatchInfo(simulation_run_id=RUN, storage_key="k", tick_start=0, tick_end=9))
    return url


@pytest.fixture
def shell(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[bytes]]:
    """Runs a shell command, with `ticklake` in it, in an environment of its own."""

    def run(command: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
        words = f"{sys.executable} -c 'from ticklake.cli import main; main()'"
        text = command.replace("ticklake", words)
        return subprocess.run(
            ["bash", "-c", text], cwd=tmp_path, env=os.environ | environment, capture_output=True, check=False
        )

    return run


# Numbers


@pytest.mark.parametrize("arguments", [
    ["topics", "prune", "batch-topic", "--max-age", "1e400"],
    ["topics", "prune", "batch-topic", "--max-age", "nan"],
    ["topics", "prune", "batch-topic", "--max-age", "-1"],
    ["topics", "prune", "batch-topic", "--max-count", "99999999999999999999"],
    ["topics", "prune", "batch-topic", "--max-count", "-1"],
    ["topics", "tail", "batch-topic", "--count", "99999999999999999999"],
    ["dead-letters", "list", "--limit", "-1"],
    ["dead-letters", "list", "--limit", "99999999999999999999"],
    ["top", "--interval", "inf"],
    ["top", "--interval", "nan"],
])  # fmt: skip
def test_a_number_that_nothing_can_hold_is_wrong_usage(ticklake, database, arguments):
    result = ticklake(*arguments, "--database", database)
    assert result.exit_code == 2
    assert "Invalid value for" in result.stderr


@pytest.mark.parametrize("arguments", [
    ["run", "node.conf", "--stop-timeout", "inf"],
    ["run", "node.conf", "--stop-timeout", "nan"],
    ["sql", "SELECT 1", "--limit", "99999999999999999999"],
    ["index", RUN, "--storage", "s", "--lake", "l", "--insert-batch-size", "99999999999999999999"],
    ["index", RUN, "--storage", "s", "--lake", "l", "--ticks", "0:9223372036854775808"],
    ["index", RUN, "--storage", "s", "--lake", "l", "--ticks", "9:0"],
    ["index", RUN, "--storage", "s", "--lake", "l", "--ticks", f"0:{'9' * 5000}"],
    ["index", RUN, "--storage", "s", "--lake", "l", "--ticks", "0:9:9"],
    ["end", RUN, "--storage", "s", "--silent-for", "nan"],
    ["end", RUN, "--storage", "s", "--silent-for", "inf"],
    ["end", RUN, "--storage", "s", "--last-tick", "99999999999999999999"],
    ["end", RUN, "--storage", "s", "--last-tick", "9" * 5000],
    ["ui", "--port", "65536"],
    ["demo", "--ticks", "99999999999999999999"],
    ["demo", "--seed", "-1"],
])  # fmt: skip
def test_so_is_one_of_a_command_without_a_database(ticklake, arguments):
    result = ticklake(*arguments)
    assert result.exit_code == 2
    assert "Invalid value for" in result.stderr


def test_the_largest_numbers_are_fine(ticklake, database, lake):
    largest = str(2**63 - 1)
    assert ticklake("topics", "prune", "batch-topic", "--max-count", largest, "--database", database).exit_code == 0
    assert ticklake("topics", "tail", "batch-topic", "--count", largest, "--database", database).exit_code == 0
    assert ticklake("dead-letters", "list", "--limit", largest, "--database", database).exit_code == 0
    assert ticklake("sql", "SELECT 1", "--limit", largest, "--lake", lake).exit_code == 0


# Options


@pytest.mark.parametrize(("group", "option", "command"), [
    ("claims", ["--topic", "other"], ["release", "--stuck"]),
    ("claims", ["--run", "other"], ["release", "--stuck"]),
    ("topics", ["--run", "other"], ["tail", "batch-topic"]),
    ("topics", ["--json"], ["prune", "batch-topic", "--max-count", "1"]),
    ("groups", ["--topic", "other"], ["reset", "batch-topic", "g", "--to", "end"]),
])  # fmt: skip
def test_an_option_in_front_of_a_command_is_refused_not_ignored(ticklake, database, group, option, command):
    result = ticklake(group, *option, *command, "--database", database)
    assert result.exit_code == 2
    assert f"{option[0]} after '{command[0]}'" in result.stderr


def test_a_configuration_that_was_given_counts_more_than_the_environment(ticklake, tmp_path, monkeypatch, database):
    from click.testing import CliRunner

    from ticklake.cli import cli

    file = write_starter(tmp_path / "node")
    environment = {"TICKLAKE_DATABASE": database, "TICKLAKE_STORAGE": "/nowhere", "TICKLAKE_LAKE": "/nowhere"}
    shown = CliRunner().invoke(cli, ["topics"], env=environment)
    assert "batch-topic" in shown.stdout
    other = CliRunner().invoke(cli, ["topics", "--config", str(file)], env=environment)
    assert (other.exit_code, other.stdout) == (0, "No topics yet.\n"), other.output
    both = CliRunner().invoke(cli, ["topics", "--config", str(file), "--database", database], env=environment)
    assert "batch-topic" in both.stdout


def test_doctor_takes_a_configuration_or_places(ticklake, tmp_path):
    file = write_starter(tmp_path / "node")
    result = ticklake("doctor", "--config", file, "--lake", tmp_path)
    assert result.exit_code == 2
    assert "--config FILE or --lake, not both" in result.stderr


def test_doctor_says_nothing_is_left_out_when_it_examines_everything(ticklake, tmp_path):
    file = tmp_path / "two.conf"
    file.write_text("resources { a { class = Storage, path = a }, b { class = Storage, path = b } }\nservices { }\n")
    result = ticklake("doctor", "--config", file)
    assert result.stderr == ""
    assert {f"storage {tmp_path}/{name}" in result.stdout for name in "ab"} == {True}


def test_a_topic_that_is_not_there_is_named(ticklake, database):
    for command in (["tail", "btch-topic"], ["prune", "btch-topic", "--max-count", "1"]):
        with pytest.raises(TopicNotFound, match=r"has no topic 'btch-topic'.*batch-topic"):
            ticklake("topics", *command, "--database", database)


def test_demo_in_a_directory_with_another_configuration_is_refused(ticklake, tmp_path):
    (tmp_path / "ticklake.conf").write_text("resources { }\nservices { }\n")
    with pytest.raises(NotADemo, match=r"simulation.*--directory"):
        ticklake("demo", "--directory", tmp_path)


# Places


def test_a_storage_that_is_not_there_is_not_an_empty_one(ticklake, tmp_path):
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "none", tmp_path / "file"):
        for command in ("runs", "status"):
            with pytest.raises(StorageNotFound, match=f"No storage at {place}: "):
                ticklake(command, "--storage", place)


def test_one_that_a_configuration_names_may_come_later(ticklake, tmp_path):
    file = tmp_path / "node.conf"
    file.write_text("resources { a { class = Storage, path = a } }\nservices { }\n")
    assert ticklake("runs", "--config", file).stdout == "No runs yet.\n"
    with pytest.raises(RunNotFound, match=f"^There is no run in {tmp_path}/a yet"):
        ticklake("status", "--config", file)


def test_a_file_is_no_database(ticklake, tmp_path):
    (tmp_path / "file").write_text("")
    for command in (["runs"], ["topics"], ["claims"], ["db", "status"], ["dead-letters", "list"]):
        with pytest.raises(NotADirectoryError):
            ticklake(*command, "--database", f"sqlite:///{tmp_path}/file")
    examined = ticklake("doctor", "--database", f"sqlite:///{tmp_path}/file")
    assert examined.exit_code == 1
    assert "answers" not in examined.stdout
    assert "The check itself failed" not in examined.stdout


# Terminals, pipes and disks


def test_output_that_the_encoding_lacks_is_escaped(shell):
    done = shell("ticklake doctor", PYTHONIOENCODING="latin-1")
    assert done.returncode == 0, done.stderr
    assert rb"\u2713 python" in done.stdout
    assert done.stderr == b""


def test_no_output_at_all_is_no_failure(shell, lake):
    closed = shell(f"ticklake sql 'SELECT 1' --format csv --lake {lake} >&-")
    assert (closed.returncode, closed.stderr) == (0, b"")


def test_a_full_disk_below_the_output_is_one_line(shell, lake):
    done = shell(f"ticklake sql 'SELECT 1' --format csv --lake {lake} > /dev/full")
    assert (done.returncode, done.stderr) == (1, b"Error: [Errno 28] No space left on device\n")


def test_an_error_that_nobody_expects_is_one_line_and_its_traceback_is_for_the_asking(tmp_path):
    script = (
        "import sys; from ticklake import cli; import ticklake.cli.pipeline.init as init\n"
        "def broken(directory): raise KeyError('x')\n"
        "init.init.callback = broken\n"
        "sys.argv = ['ticklake', *sys.argv[1:]]\n"
        "cli.main()\n"
    )

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", script, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)

    quiet, loud = run("init"), run("-vv", "init")
    assert (quiet.returncode, loud.returncode) == (1, 1)
    assert quiet.stderr.startswith("Error: This is a bug in TickLake")
    assert len(quiet.stderr.splitlines()) == 1
    assert "Traceback" in loud.stderr


def test_a_full_disk_leaves_no_half_written_configuration(tmp_path):
    """Otherwise the next `init` finds a file and leaves it as it is."""

    def small() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

    command = [sys.executable, "-B", "-c", "from ticklake.cli import main; main()", "init", str(tmp_path / "node")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=small)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert list((tmp_path / "node").iterdir()) == []
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr


def test_top_without_a_terminal_prints_every_frame(shell, lake):
    done = shell(f"ticklake top --lake {lake} --interval 0.1 | head -60")
    assert done.stdout.count(b"ticklake top") > 1
    assert done.stderr == b""
