"""Every command takes its places from `--config`, and `newest` stands for the newest run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from in_process import InProcess

from ticklake import Database, RunCompleted
from ticklake.cli import cli
from ticklake.errors import NoRuns, RunNotFound
from ticklake.indexers.base import IndexerResources
from ticklake.indexers.builtin import MetadataIndexer
from ticklake.indexers.builtin.organism import OrganismIndexer
from ticklake.indexers.finished_run import FinishedRun

NEW = "20251015-090000-aaaaaaaa"
Command = Callable[..., Result]
PLACES = ("storage", "lake", "database")
WITHOUT_PLACES = {"config check", "config show", "demo", "init", "run"}


def write_config(file: Path, **places: str) -> Path:
    """Writes a configuration with these places and nothing else. A place is named after its kind: `lake`, `lake2`."""
    kinds = {"storage": "Storage, path", "lake": "Lake, path", "database": "Database, url"}
    lines = [f'{name} {{ class = {kinds[name.rstrip("2")]} = "{place}" }}' for name, place in places.items()]
    file.write_text("resources {\n" + "\n".join(lines) + "\n}\n")
    return file


@pytest.fixture
def indexed(maker: Any) -> Any:
    """A run with twenty ticks, all of them in `organism_data`."""
    maker.metadata()
    maker.batches(2, ticks=10)
    maker.storage.write_completion(RunCompleted(simulation_run_id=maker.run_id, last_tick=19))
    spark: Any = InProcess()
    resources = IndexerResources(maker.storage, maker.lake, spark=lambda: spark)
    MetadataIndexer("metadata-indexer", resources).write(maker.run_id)
    work = FinishedRun(resources, maker.run_id, [OrganismIndexer]).start()
    while not work.wait(1.0):
        pass
    with Database(maker.database_url) as database:
        database.run(maker.run_id).reader("batch-topic", group="g").close()
    return maker


@pytest.fixture
def config(indexed: Any, tmp_path: Path) -> Path:
    places = {"storage": indexed.storage.url, "lake": str(indexed.lake.root), "database": indexed.database_url}
    return write_config(tmp_path / "places.conf", **places)


def leaves(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from leaves(command, (*words, name))
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield (*words, name), command


def test_every_command_that_needs_a_place_takes_a_configuration() -> None:
    found = {" ".join(words): {param.name for param in command.params} for words, command in leaves(cli)}
    assert len(found) > 25
    for command, names in found.items():
        if command not in WITHOUT_PLACES:
            assert "config" in names, f"`ticklake {command}` has no --config"
            assert names.intersection((*PLACES, "shared")), command


QUERIES = [
    ["status", "newest"],
    ["end", "newest", "--silent-for", "0"],
    ["verify", "newest"],
    ["gaps", "newest"],
    ["reconcile", "newest"],
    ["sql", "SELECT count(*) AS n FROM organism_data", "--run", "newest"],
    ["topics", "--run", "newest"],
    ["groups", "--run", "newest"],
    ["claims", "--run", "newest"],
    ["dead-letters", "list", "--run", "newest"],
    ["db", "status", "--run", "newest"],
    ["top", "newest", "--once"],
    ["optimize", "newest"],
    ["vacuum", "newest"],
    ["runs"],
    ["status"],
]


@pytest.mark.parametrize("words", QUERIES, ids=" ".join)
def test_a_configuration_gives_the_places_and_newest_the_run(config: Path, ticklake: Command, words: list[str]) -> None:
    result = ticklake(*words, "--config", config)
    assert result.exit_code == 0, result.output
    assert "Not shown" not in result.stderr


def test_newest_is_the_newest_of_several_runs(ticklake: Command, lake: Path, report: Callable[..., Any]) -> None:
    query = "SELECT count(*) AS n FROM organism_data"
    assert report("sql", query, "--lake", lake, "--run", "newest") == [{"n": 5}]
    assert report("sql", query, "--lake", lake) == [{"n": 25}]
    assert report("status", "newest", "--lake", lake)["run_id"] == NEW


def test_without_a_run_newest_says_that_there_is_none(ticklake: Command, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(NoRuns):
        ticklake("status", "newest", "--storage", empty)
    with pytest.raises(NoRuns):
        ticklake("index", "--storage", empty, "--lake", tmp_path / "lake")


def test_an_option_wins_over_the_configuration(config: Path, ticklake: Command, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(NoRuns):
        ticklake("verify", "--config", config, "--storage", tmp_path / "empty")
    with pytest.raises(RunNotFound):
        ticklake("index", "nope", "--config", config)


def test_several_storages_are_an_error_that_names_them(indexed: Any, ticklake: Command, tmp_path: Path) -> None:
    places = {"storage": indexed.storage.url, "storage2": str(tmp_path / "other"), "lake": str(indexed.lake.root)}
    several = write_config(tmp_path / "several.conf", **places)
    for words in (["verify"], ["gaps"], ["index"], ["end", "newest"]):
        refused = ticklake(*words, "--config", several)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert "several.conf names several storages (" in refused.stderr


@pytest.mark.parametrize("words", [["verify"], ["index"], ["sql", "SELECT 1"], ["optimize"], ["vacuum"]], ids=" ".join)
def test_none_or_several_lakes_are_an_error_that_names_them(
    indexed: Any, ticklake: Command, tmp_path: Path, words: list[str]
) -> None:
    lake, other = str(indexed.lake.root), str(tmp_path / "other")
    several = write_config(tmp_path / "several.conf", storage=indexed.storage.url, lake=lake, lake2=other)
    refused = ticklake(*words, "--config", several)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert f"several.conf names several lakes ({lake}, {other}). Choose one with --lake DIR" in refused.stderr
    none = write_config(tmp_path / "none.conf", storage=indexed.storage.url)
    refused = ticklake(*words, "--config", none)
    assert refused.exit_code == 2
    assert "none.conf names no lake" in refused.stderr or "Give --lake DIR" in refused.stderr


def test_no_database_in_a_configuration_is_an_error(indexed: Any, ticklake: Command, tmp_path: Path) -> None:
    none = write_config(tmp_path / "none.conf", storage=indexed.storage.url)
    for words in (["topics"], ["groups"], ["claims"], ["dead-letters", "list"], ["db", "status"]):
        refused = ticklake(*words, "--config", none)
        assert refused.exit_code == 2
        assert "none.conf names no database. Give --database URL." in refused.stderr


def test_a_report_of_one_of_two_lakes_names_the_other(indexed: Any, ticklake: Command, tmp_path: Path) -> None:
    lake, other = str(indexed.lake.root), str(tmp_path / "other")
    several = write_config(tmp_path / "several.conf", storage=indexed.storage.url, lake=lake, lake2=other)
    assert f"Not shown, because only one storage and one lake are shown at a time: {other}" in (
        ticklake("status", "--config", several).stderr
    )
    assert ticklake("status", "--config", several, "--lake", lake).stderr == ""
    assert ticklake("--quiet", "status", "--config", several).stderr == ""


def without_java(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs a command where no JVM can start."""
    command = [sys.executable, "-m", "ticklake", *map(str, words)]
    places = {f"TICKLAKE_{name.upper()}" for name in PLACES}
    environment = {name: value for name, value in os.environ.items() if name not in places}
    environment |= {"JAVA_HOME": "/nowhere", "PATH": "/nowhere"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=120)


def test_indexing_again_what_is_there_starts_no_spark(config: Path, indexed: Any) -> None:
    done = without_java("index", "--config", config, "--table", "organism_data", "--json")
    assert done.returncode == 0, done.stderr
    (table,) = json.loads(done.stdout)["tables"]
    assert (table["ticks"], table["present"], table["total"]) == (0, 20, 20)
    shared = without_java(
        "index", "newest", "--config", config, "--table", "organism_data", "--database", indexed.database_url
    )
    assert shared.returncode == 0, shared.stderr
    indexed.batch(20, 29)
    assert without_java("index", "--config", config, "--table", "organism_data").returncode == 1, "now Spark is needed"
    part = without_java("index", "--config", config, "--table", "organism_data", "--ticks", "0:15")
    assert part.returncode == 0, part.stderr


def test_quiet_prints_only_results(config: Path) -> None:
    result = CliRunner().invoke(cli, ["--quiet", "sql", "SELECT * FROM organism_data", "--config", str(config)])
    assert (result.exit_code, result.stderr) == (0, "")
    noisy = CliRunner().invoke(cli, ["sql", "SELECT * FROM organism_data", "--limit", "1", "--config", str(config)])
    assert "Only the first 1 rows" in noisy.stderr
    quiet = CliRunner().invoke(cli, ["-q", "optimize", "--config", str(config)])
    assert (quiet.exit_code, quiet.stderr) == (0, "")
    both = CliRunner().invoke(cli, ["-q", "-v", "runs", "--config", str(config)])
    assert both.exit_code == 2


@pytest.mark.parametrize("value", ["1", "yes"])
def test_no_color_means_no_colour(config: Path, value: str) -> None:
    def doctor(**environment: str) -> str:
        return CliRunner().invoke(cli, ["doctor", "--config", str(config)], color=True, env=environment).stdout

    assert "\x1b[32m" in doctor(NO_COLOR="")
    assert "\x1b[" not in doctor(NO_COLOR=value)
