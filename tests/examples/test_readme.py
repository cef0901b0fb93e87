"""The README is true: its snippets run, its commands exist and print tables of the shape that it shows."""

from __future__ import annotations

import ast
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ticklake import Database, RunCompleted
from ticklake.cli import cli

ROOT = Path(__file__).parents[2]
RUN = "20261116-193607-0906e959"


def test_the_first_two_commands_are_the_demo_and_the_tests(readme: Any) -> None:
    assert [shown.command for shown in readme.shown()][:2] == ["make demo", "make test"]


def test_the_topics_snippet_publishes_reads_and_acknowledges(
    readme: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(readme.block("python", "from ticklake import BatchInfo, Database"), "README.md", "exec"), names)
    assert names["message"].payload.tick_end == 99
    with Database("sqlite:///data/db") as database:
        (group,) = database.run("20251014-143025-550e8400").groups.list()
    assert (group.topic, group.group, group.lag) == ("batch-topic", "environment-indexer", 0)


@pytest.mark.parametrize(
    ("example", "containing"), [("own_indexer.py", "class EnergyIndexer"), ("own_producer.py", "producer.emit")]
)
def test_what_it_shows_of_an_example_is_in_that_example(readme: Any, example: str, containing: str) -> None:
    source = (ROOT / "examples" / example).read_text(encoding="utf-8")
    assert readme.block("python", containing) in source
    ast.parse(source)


def test_every_command_and_option_exists(readme: Any) -> None:
    shown = readme.shown("ticklake ")
    assert len(shown) >= 4
    for one in shown:
        one.check_usage()


@pytest.mark.spark
def test_the_commands_on_ones_own_data_do_what_the_page_shows(
    readme: Any, maker: Any, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker.metadata()
    maker.batches(2)
    maker.storage.write_completion(RunCompleted(simulation_run_id=maker.run_id, last_tick=199))
    (tmp_path / "ticklake-demo" / "data").mkdir(parents=True)
    (tmp_path / "ticklake-demo" / "data" / "storage").symlink_to(tmp_path / "storage")
    (tmp_path / "ticklake-demo" / "data" / "lake").symlink_to(tmp_path / "lake")
    monkeypatch.chdir(tmp_path)
    shown = readme.shown("ticklake ")
    for one in sorted(shown, key=lambda one: "ticklake index" not in one.command):
        words = shlex.split(one.command.replace(RUN, maker.run_id))
        result = CliRunner().invoke(cli, words[1:])
        assert (result.exit_code, result.exception) == (0, None), result.output
        assert one.looks_like(result.output), result.output
    assert maker.keys() == sorted(maker.expected_keys(range(200)))
