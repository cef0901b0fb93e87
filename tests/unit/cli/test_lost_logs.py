"""A folder of the lake has Parquet files but no `_delta_log`: everything that reads tables names it, in one line."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from in_process import InProcess

from ticklake import RunCompleted
from ticklake.doctor import CHECKS, Subject
from ticklake.errors import BadQuery, TableWithoutLog
from ticklake.indexers.base import IndexerResources
from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.indexers.finished_run import FinishedRun
from ticklake.lake.read import Catalog, read

from .conftest import NEW, OLD

Command = Callable[..., Result]
WHAT = "has Parquet files but no _delta_log"


def lose_log(table: Path) -> None:
    shutil.rmtree(table / "_delta_log")


def empty_log(table: Path) -> None:
    for path in (table / "_delta_log").iterdir():
        path.unlink()


def link_log_to_nothing(table: Path) -> None:
    lose_log(table)
    (table / "_delta_log").symlink_to("not mounted")


def said(done: Result) -> str:
    """The one line that names the folder."""
    (line,) = [line for line in (done.stdout + done.stderr).splitlines() if WHAT in line]
    assert "copy the log back" in line and "move it out of the lake" in line
    return line


@pytest.mark.parametrize("command", [("status", OLD), ("runs",)], ids=" ".join)
def test_runs_and_status_name_the_folder(ticklake: Command, lake: Path, command: tuple[str, ...]) -> None:
    shutil.rmtree(lake / OLD / "metadata")
    assert ticklake(*command, "--lake", lake).exit_code == 0
    lose_log(lake / OLD / "organism_data")
    done = ticklake(*command, "--lake", lake)
    assert done.exit_code == 1
    assert f"{OLD}/organism_data" in said(done)


def test_a_run_that_has_nothing_else_is_listed(ticklake: Command, lake: Path) -> None:
    lose_log(lake / NEW / "organism_data")
    assert NEW in ticklake("runs", "--lake", lake).stdout
    assert NEW in said(ticklake("status", "--lake", lake))


@pytest.mark.warns("Skipped: Folder")
def test_a_query_of_it_is_refused_and_others_warn(
    ticklake: Command, lake: Path, report: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    lose_log(lake / OLD / "organism_data")
    with pytest.raises(BadQuery, match=f"{OLD}/organism_data {WHAT}"):
        ticklake("sql", "SELECT count(*) FROM organism_data", "--lake", lake)
    caplog.clear()
    assert report("sql", "SELECT count(*) AS rows FROM metadata", "--lake", lake) == [{"rows": 1}]
    assert len([line for line in caplog.messages if WHAT in line]) == 1
    assert report("sql", "SELECT count(*) AS rows FROM organism_data", "--lake", lake, "--run", NEW) == [{"rows": 5}]
    with pytest.raises(TableWithoutLog):
        read(lake / OLD, "organism_data")


@pytest.mark.parametrize("command", [("optimize",), ("vacuum", "--older-than", "0s", "--force")], ids=" ".join)
def test_upkeep_names_it_and_removes_nothing(ticklake: Command, lake: Path, command: tuple[str, ...]) -> None:
    lose_log(lake / OLD / "organism_data")
    before = sorted((lake / OLD / "organism_data").iterdir())
    done = ticklake(*command, "--lake", lake)
    assert done.exit_code == 1
    said(done)
    assert sorted((lake / OLD / "organism_data").iterdir()) == before


def index(maker: Any) -> None:
    spark: Any = InProcess()
    resources = IndexerResources(maker.storage, maker.lake, None, spark=lambda: spark)
    work = FinishedRun(resources, maker.run_id, [EnvironmentIndexer]).prepare()
    work.start()
    while not work.wait(1.0):
        pass


@pytest.fixture
def indexed(maker: Any) -> Path:
    maker.metadata()
    maker.batches(4, ticks=10)
    maker.storage.write_completion(RunCompleted(simulation_run_id=maker.run_id, last_tick=39))
    index(maker)
    directory: Path = maker.folder("environment_data")
    return directory


def test_verify_and_doctor_name_it_and_the_advice_helps(maker: Any, indexed: Path, ticklake: Command) -> None:
    places = ["--storage", maker.storage.url, "--lake", maker.lake_folder]
    subject = Subject(storages=(Path(maker.storage.url),), lakes=(maker.lake_folder,))
    assert ticklake("verify", *places).exit_code == 0
    kept = shutil.copytree(indexed / "_delta_log", indexed.parent / "kept")
    lose_log(indexed)
    done = ticklake("verify", *places)
    assert done.exit_code == 1
    assert str(indexed) in said(done)
    (finding,) = CHECKS["tables"](subject)
    assert finding.level == "warning" and f"{indexed} {WHAT}" in finding.message
    assert maker.run_id in finding.remedy
    assert [one.level for one in CHECKS["orphaned files"](subject)] == ["ok"]

    shutil.copytree(kept, indexed / "_delta_log")
    assert ticklake("verify", *places).exit_code == 0, "copied back"
    lose_log(indexed)
    index(maker)
    assert ticklake("verify", *places).exit_code == 0, "indexed again"
    assert [one.level for one in CHECKS["tables"](subject)] == ["ok"]


@pytest.mark.parametrize("lose", [lose_log, link_log_to_nothing])
def test_a_table_metadata_without_its_log_is_named(
    maker: Any, indexed: Path, ticklake: Command, lose: Callable[[Path], None]
) -> None:
    places = ["--storage", maker.storage.url, "--lake", maker.lake_folder]
    lose(indexed.with_name("metadata"))
    done = ticklake("verify", *places)
    assert done.exit_code == 1
    assert "metadata has Parquet files but no" in done.stdout
    (finding,) = CHECKS["tables"](Subject(storages=(Path(maker.storage.url),), lakes=(maker.lake_folder,)))
    assert "metadata has Parquet files but no" in finding.message


@pytest.mark.parametrize("lose", [lose_log, empty_log, link_log_to_nothing])
def test_a_log_can_be_lost_in_other_ways(ticklake: Command, lake: Path, lose: Callable[[Path], None]) -> None:
    lose(lake / NEW / "organism_data")
    assert "organism_data has Parquet files but no" in ticklake("status", NEW, "--lake", lake).stderr
    assert "organism_data has Parquet files but no" in ticklake("runs", "--lake", lake).stderr


def test_folders_that_may_not_be_tables_are_ignored(lake: Path) -> None:
    (lake / OLD / "cells.old").mkdir()
    (lake / OLD / "cells.old" / "0.parquet").touch()
    (lake / OLD / "empty").mkdir()
    (lake / OLD / "notes").mkdir()
    (lake / OLD / "notes" / "readme.txt").touch()
    assert Catalog(lake).tables(OLD) == ["metadata", "organism_data"]


def test_files_in_partitions_count(lake: Path) -> None:
    (lake / OLD / "cells" / "day=1").mkdir(parents=True)
    (lake / OLD / "cells" / "day=1" / "0.parquet").touch()
    assert Catalog(lake).tables(OLD) == ["cells", "metadata", "organism_data"]
    with pytest.raises(TableWithoutLog):
        Catalog(lake).open(OLD, "cells")
