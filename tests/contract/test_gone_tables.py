"""A table that an indexer has filled and that is gone is missed by everything that reports on tables."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from in_process import InProcess
from tests.contract.apart import apart

from ticklake import Database, RunCompleted
from ticklake.cli import cli
from ticklake.coordination import Target
from ticklake.coordination.groups import bind, unbind
from ticklake.coordination.target import NO_TABLE
from ticklake.doctor import CHECKS, Subject
from ticklake.doctor.subject import Store
from ticklake.indexers.base import IndexerOptions, IndexerResources
from ticklake.indexers.builtin import DummyIndexer, EnvironmentIndexer, OrganismIndexer
from ticklake.indexers.builtin.metadata import MetadataIndexer
from ticklake.indexers.finished_run import FinishedRun
from ticklake.insights import gone_tables
from ticklake.lake.lake import Lake
from ticklake.lake.read import Catalog
from ticklake.topics import Run

KINDS = {"environment_data": EnvironmentIndexer, "organism_data": OrganismIndexer}
Command = Callable[..., Result]


@pytest.fixture
def database_url(database_url: str) -> Iterator[str]:
    with apart(database_url) as url:
        yield url


@pytest.fixture
def made(maker: Any, run: Run) -> Any:
    """A run of twenty ticks that has ended."""
    maker.run_id = run.id
    maker.metadata()
    with run.writer("batch-topic") as writer:
        writer.send_many([maker.batch(0, 9), maker.batch(10, 19)])
    maker.storage.write_completion(RunCompleted(simulation_run_id=run.id, last_tick=19))
    return maker


def resources(made: Any, database: Database, lake: Lake) -> IndexerResources:
    return IndexerResources(made.storage, lake, database, spark=InProcess)  # type: ignore[arg-type]


def share(made: Any, database: Database, lake: Lake) -> None:
    """Fills both tables through a coordinator."""
    work = FinishedRun(resources(made, database, lake), made.run_id, KINDS.values()).prepare().start()
    while not work.wait(1.0):
        pass


def listen(made: Any, database: Database, lake: Lake) -> None:
    """Fills both tables from the topic."""
    found = resources(made, database, lake)
    MetadataIndexer("metadata-indexer", found).write(made.run_id)
    for table, kind in KINDS.items():
        kind(f"{table}-group", found, IndexerOptions(made.run_id, until_caught_up=True)).run()


@pytest.fixture(params=[share, listen])
def filled(request: pytest.FixtureRequest, made: Any, database: Database) -> Any:
    request.param(made, database, made.lake)
    return made


@pytest.fixture
def ticklake(filled: Any, database_url: str) -> Command:
    def call(command: str, *more: str) -> Result:
        places = ["--storage", filled.storage.url, "--lake", str(filled.lake_folder), "--database", database_url]
        environment = {"COLUMNS": "200", "TICKLAKE_STORAGE": None, "TICKLAKE_LAKE": None, "TICKLAKE_DATABASE": None}
        given = [command, *([] if command == "runs" else [filled.run_id]), *places, *more]
        return CliRunner().invoke(cli, given, env=environment, catch_exceptions=False)

    return call


def gone(run: Run, lake: Path) -> list[str]:
    return list(gone_tables(Catalog(lake), run.id, [run]))


@pytest.mark.parametrize("command", ["verify", "status", "runs", "top"])
def test_commands_name_a_table_that_was_moved_away(
    filled: Any, ticklake: Command, command: str, tmp_path: Path
) -> None:
    more = ["--once"] if command == "top" else []
    assert ticklake(command, *more).exit_code == 0
    filled.folder("organism_data").rename(tmp_path / "away")
    done = ticklake(command, *more)
    assert done.exit_code == 1
    output = done.stdout + done.stderr
    assert f"{filled.folder('organism_data')}, which " in output and " is gone." in output
    (tmp_path / "away").rename(filled.folder("organism_data"))
    assert ticklake(command, *more).exit_code == 0


def test_verify_says_what_is_missing_and_what_to_do(filled: Any, ticklake: Command, tmp_path: Path) -> None:
    filled.folder("organism_data").rename(tmp_path / "away")
    output = ticklake("verify").stdout
    assert f"`ticklake index {filled.run_id} --table organism_data`" in output
    assert "organism_data: missing, has a file: 0–19" in output
    assert "20 missing, 0 duplicated" in output
    assert ticklake("verify", "--table", "environment_data").exit_code == 0
    assert "organism_data: incomplete, 0 of 20 ticks" in ticklake("gaps").stdout


def test_a_run_all_of_whose_tables_are_gone_lacks_them_and_its_metadata(
    filled: Any, ticklake: Command, tmp_path: Path
) -> None:
    (filled.lake_folder / filled.run_id).rename(tmp_path / "away")
    done = ticklake("verify")
    assert done.exit_code == 1
    named = [line.partition(":")[0] for line in done.stdout.splitlines() if "is gone." in line]
    assert named == ["environment_data", "organism_data", "metadata"]
    assert ticklake("status").exit_code == 1


def test_the_doctor_names_it_even_if_the_lake_has_nothing_else_of_the_run(
    filled: Any, database_url: str, tmp_path: Path
) -> None:
    (filled.lake_folder / filled.run_id).rename(tmp_path / "away")
    places = {"storages": (tmp_path / "storage",), "lakes": (filled.lake_folder,), "stores": (Store(database_url),)}
    with Subject(**places, needs_spark=False) as subject:
        found = [one for one in CHECKS["tables"](subject) if filled.run_id in one.message]
    texts = [f"{one.level} {one.message}" for one in found]
    assert all(text.startswith("warning Table") and text.endswith("is gone.") for text in texts[:2]), texts
    assert "metadata is gone" in texts[2] and len(texts) == 3
    assert f"ticklake index {filled.run_id} --table environment_data" in found[0].remedy


def test_tables_of_another_lake_or_of_another_name_are_not_missed(
    filled: Any, run: Run, tmp_path: Path, database: Database
) -> None:
    other = tmp_path / "other" / run.id
    other.mkdir(parents=True)
    assert gone(run, other.parent) == []
    # A copy of one table, to look at: the others were never here.
    shutil.copytree(filled.folder("organism_data"), other / "organism_data")
    assert gone(run, other.parent) == []
    filled.folder("organism_data").rename(filled.folder("renamed_data"))
    assert gone(run, filled.lake_folder) == []


def test_a_lake_that_was_moved_or_is_reached_by_a_link_still_misses_its_tables(
    filled: Any, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(filled.lake_folder)
    filled.folder("organism_data").rename(tmp_path / "away")
    assert gone(run, tmp_path / "link") == ["organism_data"]
    filled.lake_folder.rename(tmp_path / "moved")
    assert gone(run, tmp_path / "moved") == ["organism_data"]


def test_a_machine_with_another_name_misses_tables_beside_those_that_it_has(
    filled: Any, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled.folder("organism_data").rename(tmp_path / "away")
    monkeypatch.setattr(platform, "node", lambda: "another")
    assert gone(run, filled.lake_folder) == ["organism_data"]
    (filled.lake_folder / run.id).rename(tmp_path / "all")
    assert gone(run, filled.lake_folder) == []  # it may be another lake with the same path


def test_what_never_had_a_table_is_not_missed(made: Any, run: Run, database: Database) -> None:
    made.lake_folder.mkdir(exist_ok=True)
    run.reader("batch-topic", group="waiting").close()
    bind(run, "batch-topic", "dummy", "DummyIndexer", NO_TABLE, lambda *_: None)
    MetadataIndexer("metadata-indexer", resources(made, database, made.lake)).write(run.id)
    DummyIndexer("d", resources(made, database, made.lake), IndexerOptions(run.id, until_caught_up=True)).run()
    assert gone(run, made.lake_folder) == []


def test_a_group_that_was_released_misses_no_table(made: Any, run: Run) -> None:
    made.lake_folder.mkdir(exist_ok=True)
    place = made.lake.location(run.id, "cells").url
    bind(run, "batch-topic", "g", "Cells", Target.at("1", place), lambda *_: None)
    assert gone(run, made.lake_folder) == ["cells"]
    unbind(run, "batch-topic", "g")
    assert gone(run, made.lake_folder) == []
