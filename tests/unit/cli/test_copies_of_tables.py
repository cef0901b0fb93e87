"""A copy of a table beside it, in the same run, has its id: it hides no gap, and is named."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from deltalake import DeltaTable
from in_process import InProcess

from ticklake import Database, RunCompleted
from ticklake.doctor import CHECKS, Finding, Subject
from ticklake.indexers.base import IndexerResources
from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.indexers.finished_run import FinishedRun

Command = Callable[..., Result]
RUN_B = "20251015-143025-660e8400"


@pytest.fixture
def database(maker: Any) -> Iterator[Database]:
    with Database(maker.database_url) as opened:
        yield opened


@pytest.fixture
def indexed(maker: Any, database: Database) -> Path:
    maker.metadata()
    maker.batches(4, ticks=10)
    maker.storage.write_completion(RunCompleted(simulation_run_id=maker.run_id, last_tick=39))
    index(maker, database)
    directory: Path = maker.folder("environment_data")
    return directory


def index(maker: Any, database: Database) -> None:
    resources = IndexerResources(maker.storage, maker.lake, database, spark=InProcess)  # type: ignore[arg-type]
    work = FinishedRun(resources, maker.run_id, [EnvironmentIndexer]).prepare()
    work.start()
    while not work.wait(1.0):
        pass


def places(maker: Any) -> list[str]:
    return ["--storage", maker.storage.url, "--lake", str(maker.lake.root)]


def doctor(maker: Any) -> list[Finding]:
    patient = Subject(storages=(Path(maker.storage.url),), lakes=(maker.lake_folder,))
    return list(CHECKS["tables"](patient))


@pytest.mark.warns("are completed but not in", "failed: No file")
@pytest.mark.parametrize("name", ["a_copy", "environment_data_backup"])
def test_a_copy_hides_no_gap(
    maker: Any, database: Database, indexed: Path, report: Callable[..., Any], name: str
) -> None:
    shutil.copytree(indexed, indexed.with_name(name))
    DeltaTable(indexed).delete("tick_number >= 10 and tick_number <= 19")
    for file in (Path(maker.storage.url) / maker.run_id).glob("batch_*10_*19*"):
        file.unlink()
    index(maker, database)
    (gaps,) = report("top", maker.run_id, "--once", *places(maker), "--database", maker.database_url)["gaps"]
    assert gaps["pending"] == 1


def test_verify_and_doctor_name_copies(maker: Any, indexed: Path, ticklake: Command) -> None:
    assert [one.level for one in doctor(maker)] == ["ok"]
    shutil.copytree(indexed, indexed.with_name("a_copy"))
    shown = ticklake("verify", maker.run_id, *places(maker)).stdout
    assert "a_copy and environment_data are copies with one table id" in shown
    (finding,) = doctor(maker)
    assert "a_copy and environment_data" in finding.message


def test_the_doctor_names_metadata_that_disagree_and_tables_of_other_runs(maker: Any, indexed: Path) -> None:
    for file in (Path(maker.storage.url) / maker.run_id).glob("metadata*"):
        file.unlink()
    maker.metadata(step=5)
    shutil.copytree(indexed, Path(str(maker.lake.location(RUN_B, "environment_data"))))
    (other,) = [one.message for one in doctor(maker) if "is a table of run" in one.message]
    (disagreement,) = [one.message for one in doctor(maker) if "is a table of run" not in one.message]
    assert "samplingInterval is 1 instead of 5" in disagreement
    assert f"is a table of run {maker.run_id!r}" in other
