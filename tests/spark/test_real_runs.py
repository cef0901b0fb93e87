"""Runs that the original wrote: every figure that an independent decoder found is in the tables, for every reader."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from ticklake.indexers.base import IndexerResources
from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.indexers.builtin.organism import OrganismIndexer
from ticklake.indexers.finished_run import FinishedRun
from ticklake.lake.lake import Lake
from ticklake.storage.files import Storage

DATA = Path(__file__).parents[3] / "shared" / "data"
RUNS = sorted(path.parent for path in DATA.glob("*/EXPECTED.json"))
needs_data = pytest.mark.skipif(not RUNS, reason="the two real runs, ../shared/data, are not here")


@pytest.fixture(scope="session")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both runs, indexed straight from their files."""
    lake = tmp_path_factory.mktemp("real") / "lake"
    for run in RUNS:
        resources = IndexerResources(Storage(DATA), Lake(lake), spark=lambda: spark)
        work = FinishedRun(resources, run.name, [EnvironmentIndexer, OrganismIndexer]).start()
        while not work.wait(60):
            pass
    return lake


@needs_data
@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name[:17])
def test_every_expected_figure_is_in_the_tables(lake: Path, run: Path) -> None:
    expected = json.loads((run / "EXPECTED.json").read_text())
    for name, sums in ((table, expected[table]["sums"]) for table in ("environment_data", "organism_data")):
        rows = DeltaTable(lake / run.name / name).to_pyarrow_table()
        assert rows.num_rows == expected[name]["rows"]
        found = {column: pc.sum(rows["is_dead" if column == "dead" else column]).as_py() for column in sums}
        assert found == sums
        ticks = pc.unique(rows["tick_number"])
        assert (len(ticks), pc.min(ticks).as_py(), pc.max(ticks).as_py()) == (
            expected["distinct_ticks"], expected["tick_min"], expected["tick_max"],
        )  # fmt: skip


@needs_data
@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name[:17])
def test_one_tick_is_whole(lake: Path, run: Path) -> None:
    one = json.loads((run / "EXPECTED.json").read_text())["one_tick"]
    for name, count in (("environment_data", one["cells"]), ("organism_data", one["organisms"])):
        tick = [("tick_number", "=", one["tick_number"])]
        assert DeltaTable(lake / run.name / name).to_pyarrow_table(filters=tick).num_rows == count


def by_duckdb(path: Path) -> int:
    cells = DeltaTable(path).to_pyarrow_dataset()  # noqa: F841  DuckDB finds it by its name
    return duckdb.sql("SELECT sum(cell_id) FROM cells").fetchall()[0][0]


def by_polars(path: Path) -> int:
    return polars.from_arrow(DeltaTable(path).to_pyarrow_table())["cell_id"].cast(polars.Int64).sum()


def by_pandas(path: Path) -> int:
    return int(DeltaTable(path).to_pandas()["cell_id"].sum())


@needs_data
@pytest.mark.parametrize("read", [by_duckdb, by_polars, by_pandas])
def test_other_engines_read_the_same(lake: Path, read: Callable[[Path], Any]) -> None:
    expected = json.loads((RUNS[0] / "EXPECTED.json").read_text())
    assert read(lake / RUNS[0].name / "environment_data") == expected["environment_data"]["sums"]["cell_id"]
