"""What commands say if there is nothing yet, if there is more than one run, and what they ask before they delete."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ticklake import BatchInfo, Database
from ticklake.cli.pipeline.index import SparkSetting
from ticklake.cli.terminal.plot import plot

OLD, NEW = "20251014-143025-550e8400", "20251015-090000-aaaaaaaa"
COMMAND = [sys.executable, "-c", "from ticklake.cli import main; main()"]


@pytest.fixture
def database(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/db"
    with Database(url) as opened, opened.run(OLD).writer("batch-topic") as writer:
        writer.send(BatchInfo(simulation_run_id=OLD))
    return url


def test_groups_of_a_run_without_groups(ticklake: Any, database: str) -> None:
    assert ticklake("groups", "--database", database).stdout == "No consumer groups yet.\n"


def test_optimize_in_a_lake_without_tables(ticklake: Any, tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    assert ticklake("optimize", "--lake", tmp_path / "lake").stdout == "No tables to optimize.\n"


def test_the_status_of_a_database_without_runs(ticklake: Any, tmp_path: Path) -> None:
    (tmp_path / "db").mkdir()
    assert ticklake("db", "status", "--database", f"sqlite:///{tmp_path}/db").stdout == "No runs yet.\n"


def test_a_plot_of_no_values() -> None:
    assert plot([], title="population") == "population: nothing yet"


def test_one_of_several_runs_has_to_be_chosen(ticklake: Any, database: str) -> None:
    with Database(database) as opened, opened.run(NEW).writer("batch-topic") as writer:
        writer.send(BatchInfo(simulation_run_id=NEW))
    result = ticklake("topics", "tail", "batch-topic", "--database", database)
    assert result.exit_code == 2
    assert f"Choose a run with --run RUN; known runs: {OLD}, {NEW}." in result.stderr


def test_a_setting_that_is_not_one_of_spark_is_wrong_usage(ticklake: Any, tmp_path: Path) -> None:
    result = ticklake("index", OLD, "--storage", tmp_path, "--lake", tmp_path, "--conf", "memory=2g")
    assert result.exit_code == 2
    assert "'memory=2g' is not a Spark setting; write for example spark.executor.memory=2g" in result.stderr
    converted = SparkSetting().convert("spark.ui.enabled=false", None, None)
    assert SparkSetting().convert(converted, None, None) == ("spark.ui.enabled", "false")


def test_tail_waits_for_a_topic_that_is_not_there_until_it_is_interrupted(database: str) -> None:
    command = [*COMMAND, "topics", "tail", "later", "--run", OLD, "--database", database, "-f"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as tail:
        try:
            assert tail.stdout is not None and tail.stderr is not None
            assert tail.stderr.readline() == f"Run {OLD} has no topic 'later' yet. Waiting for its first message.\n"
            with Database(database) as opened, opened.run(OLD).writer("later") as writer:
                writer.send(BatchInfo(simulation_run_id=OLD, storage_key="the first"))
            assert "the first" in tail.stdout.readline()
            tail.send_signal(signal.SIGINT)
            assert (tail.wait(60), tail.stderr.read()) == (130, "\nError: Interrupted.\n")
        finally:
            tail.kill()


@pytest.mark.parametrize(("answer", "code", "is_left"), [("n", 130, True), ("y", 0, False)])
def test_delete_shows_what_would_go_and_asks(maker: Any, answer: str, code: int, is_left: bool) -> None:
    maker.metadata()
    maker.batch(0, 9)
    ours, theirs = os.openpty()
    command = [*COMMAND, "runs", "delete", maker.run_id, "--storage", maker.storage.url]
    # It has no end yet: only --force deletes it.
    with subprocess.Popen([*command, "--force"], stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        os.write(ours, f"{answer}\n".encode())
        out, err = run.communicate(timeout=60)
    os.close(ours)
    os.close(theirs)
    assert run.returncode == code, err.decode()
    assert b"Delete all of this? [y/N]" in out and b"1 batch files and 1 other files" in out, out.decode()
    assert (maker.storage.runs() == [maker.run_id]) == is_left
