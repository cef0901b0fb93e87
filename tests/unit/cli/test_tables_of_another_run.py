"""A table of another run in a run's folder: nobody takes it for the run's own."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import Result
from deltalake import DeltaTable
from in_process import InProcess

from ticklake import RunCompleted
from ticklake.completeness import Completeness, Verdict
from ticklake.doctor import Subject, examine
from ticklake.errors import TableOfAnotherRun
from ticklake.indexers.base import IndexerResources
from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.indexers.finished_run import FinishedRun
from ticklake.lake.delta import RUN, Location, scratch
from ticklake.lake.delta.scratch import first_commit
from ticklake.lake.metadata import read_metadata
from ticklake.lake.read.catalog import Catalog
from ticklake.lake.read.views import create_views
from ticklake.services.compaction import CompactionService

Command = Callable[..., Result]
OTHER = "20251015-143025-660e8400"


def index(maker: Any) -> None:
    resources = IndexerResources(maker.storage, maker.lake, None, spark=InProcess)  # type: ignore[arg-type]
    work = FinishedRun(resources, maker.run_id, [EnvironmentIndexer]).prepare()
    work.start()
    while not work.wait(1.0):
        pass


def run_of(maker: Any, run_id: str, shape: tuple[int, ...]) -> None:
    """A run of 20 ticks that has ended."""
    maker.run_id = run_id
    maker.metadata(shape=shape)
    maker.batches(2, ticks=10)
    maker.storage.write_completion(RunCompleted(simulation_run_id=run_id, last_tick=19))


@pytest.fixture(params=["today", "before runs were recorded"])
def first(maker: Any, request: pytest.FixtureRequest) -> str:
    """The first of two runs is indexed, today or by an older version; the maker is at the second."""
    run: str = maker.run_id
    run_of(maker, run, (10, 10))
    with pytest.MonkeyPatch.context() as patch:
        if request.param != "today":
            patch.setattr(scratch, "first_commit", without_run)
        index(maker)
    assert (RUN in properties(maker, run)) == (request.param == "today")
    run_of(maker, OTHER, (20, 20))
    return run


def without_run(name: str, schema: pa.Schema, configuration: dict[str, str]) -> bytes:
    return first_commit(name, schema, {key: value for key, value in configuration.items() if key != RUN})


def properties(maker: Any, run: str) -> dict[str, Any]:
    return {
        name: value
        for table in ("environment_data", "metadata")
        for name, value in DeltaTable(str(maker.lake.location(run, table))).metadata().configuration.items()
    }


def copy(maker: Any, run: str, table: str) -> Path:
    directory: Path = Path(str(maker.lake.location(OTHER, table)))
    shutil.copytree(Path(str(maker.lake.location(run, table))), directory)
    return directory


def places(maker: Any) -> list[str]:
    return ["--storage", maker.storage.url, "--lake", str(maker.lake.root)]


def test_a_table_of_another_run_is_refused_by_all_who_open_it(maker: Any, first: str, ticklake: Command) -> None:
    copy(maker, first, "environment_data")
    with pytest.raises(TableOfAnotherRun, match=f"{first}.*{OTHER}"):
        Catalog(maker.lake_folder).open(OTHER, "environment_data")
    with pytest.raises(TableOfAnotherRun):
        maker.lake.ledger(OTHER, EnvironmentIndexer.table)
    result = ticklake("verify", OTHER, *places(maker))
    assert result.exit_code == 1
    assert f"of run {first!r} in the folder of" in result.stdout
    deep = Completeness(OTHER, maker.storage, Catalog(maker.lake_folder)).verify(spark=InProcess())  # type: ignore[arg-type]
    assert deep.verdict is Verdict.INCOMPLETE
    with pytest.raises(TableOfAnotherRun):
        Completeness(OTHER, maker.storage, Catalog(maker.lake_folder)).plan()
    assert f"of run {first!r} in the folder of" in ticklake("status", OTHER, *places(maker)).output
    assert f"of run {first!r} in the folder of" not in ticklake("status", first, *places(maker)).output


def contents(directory: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in directory.rglob("*") if file.is_file()}


@pytest.mark.parametrize("table", ["environment_data", "metadata"])
@pytest.mark.parametrize("command", [("optimize",), ("vacuum", "--older-than", "0s", "--force")])
def test_upkeep_leaves_a_table_of_another_run_as_it_is(
    maker: Any, first: str, ticklake: Command, table: str, command: tuple[str, ...]
) -> None:
    if table == "metadata" and RUN not in properties(maker, first):
        pytest.skip("the log of an old table `metadata` does not name its run")
    directory = copy(maker, first, table)
    (directory / "part-old.parquet").write_bytes(b"what vacuum would remove")
    before = contents(directory)
    done = ticklake(*command, OTHER, "--lake", maker.lake_folder)
    assert (done.exit_code, f"{OTHER}/{table}: " in done.stderr) == (1, True)
    assert "is a table of run" in done.stderr
    assert contents(directory) == before


@pytest.mark.warns("Could not compact")
def test_a_node_does_not_compact_a_table_of_another_run(maker: Any, first: str) -> None:
    before = contents(copy(maker, first, "environment_data"))
    service = CompactionService(maker.lake_folder, run_id=OTHER)
    service.compact_all()
    assert [one.code for one in service.monitor.errors] == ["COMPACTION_FAILED"]
    assert contents(Path(str(maker.lake.location(OTHER, "environment_data")))) == before


def test_a_spark_session_gets_no_view_of_a_table_of_another_run(maker: Any, first: str) -> None:
    copy(maker, first, "environment_data")
    spark: Any = InProcess()
    with pytest.raises(TableOfAnotherRun):
        create_views(spark, Catalog(maker.lake_folder), [OTHER])


def test_the_doctor_names_a_table_of_another_run_and_finds_no_orphans_in_it(maker: Any, first: str) -> None:
    directory = copy(maker, first, "environment_data")
    (directory / "old.parquet").touch()
    os.utime(directory / "old.parquet", (0, 0))
    found = list(examine(Subject(lakes=(maker.lake_folder,))))
    assert [one.level for one in found if one.check == "tables"] == ["warning"]
    assert [one.level for one in found if one.check == "orphaned files"] == ["ok"]


@pytest.mark.warns("failed: TableOfAnotherRun")
def test_nothing_is_indexed_into_a_table_of_another_run(maker: Any, first: str) -> None:
    copy(maker, first, "environment_data")
    with pytest.raises(TableOfAnotherRun):
        index(maker)


def test_metadata_of_another_run_in_the_lake_are_refused(maker: Any, first: str, ticklake: Command) -> None:
    table = copy(maker, first, "metadata")
    with pytest.raises(TableOfAnotherRun, match=f"{first}.*{OTHER}"):
        index(maker)
    with pytest.raises(TableOfAnotherRun):
        read_metadata(Location.of(table), OTHER)
    shutil.rmtree(table)
    index(maker)
    assert ticklake("verify", OTHER, *places(maker)).exit_code == 0
    shutil.rmtree(table)
    copy(maker, first, "metadata")
    result = ticklake("verify", OTHER, *places(maker))
    assert result.exit_code == 1
    assert f"of run {first!r} in the folder of" in result.stdout


def test_a_table_of_the_run_itself_goes_on(maker: Any, first: str, ticklake: Command) -> None:
    maker.run_id = first
    assert ticklake("verify", first, *places(maker)).exit_code == 0
    maker.batch(20, 29)
    index(maker)
    assert len(set(maker.rows()["tick_number"].to_pylist())) == 30


def test_a_table_whose_commits_name_nothing_that_makes_sense_is_of_no_other_run(maker: Any, first: str) -> None:
    table = Path(str(maker.lake.location(first, "environment_data")))
    for sources in ("[]", "nothing", '[{"file": 3}]'[:9], "[[]]"):
        version = DeltaTable(table).version() + 1
        commit = {"commitInfo": {"operation": "WRITE", "timestamp": 1, "ticklake.sources": sources}}
        (table / "_delta_log" / f"{version:020d}.json").write_text(json.dumps(commit) + "\n")
    assert Catalog(maker.lake_folder).open(first, "environment_data").version() == version
