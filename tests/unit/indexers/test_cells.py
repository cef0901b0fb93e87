"""The option `cells`: what each value writes, and that every tick can be rebuilt from `environment_changes`."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from tests.crash import original
from tests.crash.in_process import InProcess
from tests.spark.test_newer_runs import DATA, EVERY_TICK, RESUMED, SHARED, cell_figures
from tests.unit.storage.test_eras import some_ticks

import ticklake
from ticklake.completeness.completeness import Completeness
from ticklake.completeness.judging import Verdict
from ticklake.indexers.base import IndexerResources
from ticklake.indexers.builtin import OF_CELLS
from ticklake.indexers.finished_run import FinishedRun
from ticklake.lake.errors import BadQuery, CellsNotRecorded, OtherCells
from ticklake.lake.lake import Lake
from ticklake.lake.read import Catalog, Frames, found_cells, query
from ticklake.storage.files import Storage
from ticklake.ticks import TickRange

Index = Callable[..., Path]
POINTS = ("lake.parquet.write", "lake.commit.before", "lake.commit.after")
KEY = [("tick_number", "ascending"), ("cell_id", "ascending")]


def index_run(
    storage: Path, lake: Path, run_id: str, cells: str, part: TickRange | None = None, size: int = 1000
) -> None:
    spark: Any = InProcess()
    resources = IndexerResources(Storage(storage), Lake(lake), spark=lambda: spark)
    work = FinishedRun(resources, run_id, [OF_CELLS[cells]], part, size).start()
    while not work.wait(60):
        pass


@pytest.fixture
def index(tmp_path: Path) -> Index:
    """Indexes ranges of a run, one after the other, into a lake, and returns the lake."""

    def index(
        storage: Path, run_id: str, cells: str, *parts: TickRange | None, lake: str = "", size: int = 1000
    ) -> Path:
        root = tmp_path / (lake or f"lake-{len(list(tmp_path.iterdir()))}")
        for part in parts or (None,):
            index_run(storage, root, run_id, cells, part, size)
        return root

    return index


def rows(lake: Path, run_id: str, table: str) -> pa.Table:
    return DeltaTable(lake / run_id / table).to_pyarrow_table().sort_by(KEY)


def verdict(storage: Path, lake: Path, run_id: str) -> Any:
    spark: Any = InProcess()
    return Completeness(run_id, Storage(storage), Catalog(lake), ended=True).verify(spark=spark)


def in_sql(lake: Path, tick: int) -> set[tuple[int, ...]]:
    with query(Catalog(lake), f"SELECT cell_id, state, owner_id FROM cells_at({tick})") as found:
        return set(found.rows)


def put(root: Path, era: str, *files: Sequence[original.Tick], chunk: int = 5) -> None:
    """Writes a run of an era with these files."""
    raw = root / original.RUN / "raw"
    (raw / "000").mkdir(parents=True)
    (raw / "metadata.pb").write_bytes(original.metadata(era))
    for ticks in files:
        name = f"batch_{ticks[0].number:019d}_{ticks[-1].number:019d}.pb"
        (raw / "000" / name).write_bytes(original.file_of(era, ticks, chunk))


def test_every_tick_of_a_resumed_run_is_rebuilt_whichever_file_comes_first(index: Index) -> None:
    expected = json.loads((DATA / "newer" / RESUMED / "EXPECTED.json").read_text())
    lake = index(DATA / "newer", RESUMED, "changes")
    backwards = index(
        DATA / "newer", RESUMED, "changes", TickRange(504, 833), TickRange(330, 497), TickRange(0, 329), None, size=7
    )
    assert rows(lake, RESUMED, "environment_changes") == rows(backwards, RESUMED, "environment_changes")
    frames = Frames(Catalog(lake))
    for place, one in enumerate(expected["ticks"]):
        found = found_cells(frames, RESUMED, one["tick"])
        assert set(found["tick_number"].to_pylist()) == {one["tick"]}
        figures = cell_figures(found)
        assert figures == {name: one[name] for name in figures}
        if place % 40 == 5:
            assert ticklake.cells_at(lake / RESUMED, one["tick"]) == found
            columns = (found[name].to_pylist() for name in ("cell_id", "state", "owner_id"))
            assert in_sql(lake, one["tick"]) == set(zip(*columns, strict=True))
    for root in (lake, backwards):
        found = verdict(DATA / "newer", root, RESUMED)
        assert (found.verdict, [table.deep.flaws for table in found.tables if table.deep]) == (Verdict.COMPLETE, [0])


@pytest.mark.skipif(not SHARED.exists(), reason="the run of every tick, ../shared/data/newer, is not here")
def test_every_tick_of_a_run_of_every_tick_is_rebuilt(index: Index) -> None:
    lake = index(SHARED, EVERY_TICK, "changes")
    frames = Frames(Catalog(lake))
    for one in json.loads((SHARED / EVERY_TICK / "EXPECTED.json").read_text())["ticks"]:
        assert cell_figures(found_cells(frames, EVERY_TICK, one["tick"]))["cells_sha256"] == one["cells_sha256"]


@pytest.mark.parametrize(
    "era", ["A", pytest.param("C", marks=pytest.mark.slow), pytest.param("D", marks=pytest.mark.slow), "G"]
)
def test_changes_and_snapshots_agree_with_all_in_every_kind_of_format(era: str, index: Index, tmp_path: Path) -> None:
    ticks = some_ticks(7, count=12, era=era, organisms=False)
    ticks[5] = original.Tick(5, {})  # an empty world, recorded completely
    ticks[7] = original.Tick(7, ticks[6].cells)  # nothing has changed
    put(tmp_path / "storage", era, ticks[:8], ticks[5:])
    lakes = {cells: index(tmp_path / "storage", original.RUN, cells) for cells in ("all", "snapshots", "changes")}
    for tick in range(12):
        found = ticklake.cells_at(original.RUN, tick, lake=lakes["changes"])
        assert found.equals(ticklake.cells_at(original.RUN, tick, lake=lakes["all"]).sort_by("cell_id"))
        assert len(in_sql(lakes["changes"], tick)) == found.num_rows
    every, some = (rows(lakes[cells], original.RUN, "environment_data") for cells in ("all", "snapshots"))
    complete = {0, 10} if era in "DG" else set(range(12))
    assert set(some["tick_number"].to_pylist()) == complete - {5}
    assert some.equals(every.filter(pa.array([tick in complete for tick in every["tick_number"].to_pylist()])))
    for lake in lakes.values():
        found = verdict(tmp_path / "storage", lake, original.RUN)
        assert (found.verdict, [table.deep.flaws for table in found.tables if table.deep]) == (Verdict.COMPLETE, [0])


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_tick_that_is_a_snapshot_in_one_file_and_a_delta_in_another_is_rebuilt(
    seed: int, index: Index, tmp_path: Path
) -> None:
    ticks = some_ticks(seed, count=20, organisms=False)
    put(tmp_path / "storage", "E", ticks[:9], ticks[3:], chunk=6)
    parts = [TickRange(at, at + 3) for at in range(0, 20, 4)]
    random.Random(seed).shuffle(parts)
    lake = index(tmp_path / "storage", original.RUN, "changes", *parts, size=3)
    for tick in ticks:
        found = ticklake.cells_at(original.RUN, tick.number, lake=lake)
        assert dict(
            zip(found["cell_id"].to_pylist(), [state & 0xFFFFFFFF for state in found["state"].to_pylist()], strict=True)
        ) == {cell: molecule for cell, (molecule, _) in tick.cells.items()}


def test_cells_that_are_in_no_table_are_an_error_and_not_an_empty_world(index: Index, tmp_path: Path) -> None:
    put(tmp_path / "storage", "E", some_ticks(1, count=10, organisms=False), chunk=10)
    lake = index(tmp_path / "storage", original.RUN, "snapshots")
    with pytest.raises(CellsNotRecorded, match=r"tick 3 of run .*: environment_data does not have them"):
        ticklake.cells_at(original.RUN, 3, lake=lake)
    index(tmp_path / "storage", original.RUN, "changes", TickRange(5, 9), lake=lake.name)
    with pytest.raises(CellsNotRecorded, match="environment_changes lacks tick 4, on which tick 7 builds"):
        ticklake.cells_at(original.RUN, 7, lake=lake)
    for tick in (3, 7):
        with pytest.raises(BadQuery, match=f"The cells of tick {tick} are not in environment_changes"):
            in_sql(lake, tick)
    index(tmp_path / "storage", original.RUN, "changes", lake=lake.name)
    assert ticklake.cells_at(original.RUN, 7, lake=lake).num_rows == len(in_sql(lake, 7)) > 0


def test_a_table_is_filled_with_one_kind_of_cells(index: Index, tmp_path: Path) -> None:
    put(tmp_path / "storage", "E", some_ticks(1, count=10, organisms=False))
    lake = index(tmp_path / "storage", original.RUN, "snapshots")
    assert (
        DeltaTable(lake / original.RUN / "environment_data").metadata().configuration["ticklake.cells"] == "snapshots"
    )
    with pytest.raises(
        OtherCells, match=r"cells = snapshots, so it cannot be filled with cells = all\. Use --cells snap"
    ):
        index(tmp_path / "storage", original.RUN, "all", lake=lake.name)
    shutil.rmtree(lake / original.RUN / "environment_data")
    index(tmp_path / "storage", original.RUN, "all", lake=lake.name)
    with pytest.raises(OtherCells, match="cells = all, so it cannot be filled with cells = snapshots"):
        index(tmp_path / "storage", original.RUN, "snapshots", lake=lake.name)


CHILD = """
import sys
from pathlib import Path
from tests.unit.indexers.test_cells import index_run
index_run(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4], size=7)
"""


def start(storage: Path, lake: Path, run_id: str, cells: str, **environment: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", CHILD, str(storage), str(lake), run_id, cells]
    return subprocess.Popen(command, env=os.environ | environment, cwd=Path(__file__).parents[3])


@pytest.mark.parametrize(
    ("cells", "point"),
    [
        (cells, point)
        if (cells, point) == ("changes", "lake.commit.before")
        else pytest.param(cells, point, marks=pytest.mark.slow)
        for cells in ("snapshots", "changes")
        for point in POINTS
    ],
)
def test_a_kill_changes_nothing(index: Index, tmp_path: Path, cells: str, point: str) -> None:
    storage, table = DATA / "newer", "environment_data" if cells == "snapshots" else "environment_changes"
    child = start(storage, tmp_path / "killed", RESUMED, cells, TICKLAKE_FAULT=f"{point}:kill:3")
    assert child.wait(60) == -signal.SIGKILL
    assert len(DeltaTable(tmp_path / "killed" / RESUMED / table).history()) < 5, "it is not done"
    lake, clean = index(storage, RESUMED, cells, lake="killed"), index(storage, RESUMED, cells)
    assert rows(lake, RESUMED, table) == rows(clean, RESUMED, table)
    assert verdict(storage, lake, RESUMED).verdict is Verdict.COMPLETE


def test_competing_indexers_leave_each_tick_once(index: Index, tmp_path: Path) -> None:
    children = [start(DATA / "newer", tmp_path / "shared", RESUMED, "changes") for _ in range(2)]
    assert [child.wait(60) for child in children] == [0, 0]
    clean = index(DATA / "newer", RESUMED, "changes")
    table = "environment_changes"
    assert rows(tmp_path / "shared", RESUMED, table) == rows(clean, RESUMED, table)
