"""Tables that are removed and made anew while they are open: figures are those of the table that is there."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from ticklake.contracts import EnvironmentConfig, SimulationMetadata
from ticklake.errors import TableNotInRun
from ticklake.indexers.builtin.organism import OrganismIndexer
from ticklake.lake.delta import Location
from ticklake.lake.delta.folder import TableFolder
from ticklake.lake.delta.log import DeltaLog, Head
from ticklake.lake.delta.parquet import ParquetFileWriter
from ticklake.lake.lake import Lake
from ticklake.lake.metadata import write_metadata
from ticklake.lake.read.catalog import Catalog
from ticklake.lake.read.frames import FRESH_SECONDS, Frames
from ticklake.lake.read.presence import Presence
from ticklake.lake.read.series import Series
from ticklake.ticks import TickRange

RUN = "20261014-143025-550e8400"
TABLE = OrganismIndexer.table
assert TABLE is not None


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def commit(lake: Path, ticks: Sequence[int], organisms: int, name: str) -> None:
    """One file, in which each tick has so many organisms."""
    ledger = Lake(lake).ledger(RUN, TABLE)
    writer = ParquetFileWriter(ledger.location, f"{name}.parquet", TABLE)
    rows = [
        {"tick_number": tick, "organism_id": one, "energy": 1, "birth_tick": 0, "is_dead": False}
        for tick in ticks
        for one in range(organisms)
    ]
    writer.append(pa.RecordBatch.from_pylist(rows, schema=TABLE.schema))
    file = writer.close()
    assert file is not None
    ledger.commit([file], {})


def population(series: Series) -> dict[int, float]:
    whole = series.ticks(RUN)
    assert whole is not None
    table = series.chart(RUN, whole, 1000).table
    return dict(zip(table["from_tick"].to_pylist(), table["population_mean"].to_pylist(), strict=True))


@pytest.mark.parametrize("commits_before", [1, 3])
@pytest.mark.parametrize("commits_after", [1, 2, 3, 6])
@pytest.mark.parametrize("waits", [True, False])
def test_figures_are_of_the_table_that_is_there(
    tmp_path: Path, commits_before: int, commits_after: int, waits: bool
) -> None:
    clock = Clock()
    series = Series(Frames(Catalog(tmp_path), clock))
    for at in range(commits_before):
        commit(tmp_path, [at], 1, f"old-{at}")
    assert population(series) == dict.fromkeys(range(commits_before), 1)
    shutil.rmtree(tmp_path / RUN / TABLE.name)
    for at in range(commits_after):
        commit(tmp_path, [at], 2 + at, f"new-{at}")
    # At once, the files of the old table are not there any more; later, its log is another one.
    clock.now += FRESH_SECONDS * 2 if waits else 0
    assert population(series) == {at: 2 + at for at in range(commits_after)}
    commit(tmp_path, [commits_after], 9, "newer")
    clock.now += FRESH_SECONDS * 2
    assert population(series) == {at: 2 + at for at in range(commits_after)} | {commits_after: 9}


def test_births_and_deaths_are_not_exact_if_a_tick_of_a_point_is_missing(tmp_path: Path) -> None:
    commit(tmp_path, [0, 1, 3, 4, 5], 1, "one")
    table = Series(Frames(Catalog(tmp_path))).chart(RUN, TickRange(0, 5), 3).table
    assert table["births_deaths_exact"].to_pylist() == [True, False, True]


def test_a_removed_table_is_told_to_be_removed(tmp_path: Path) -> None:
    clock = Clock()
    frames = Frames(Catalog(tmp_path), clock)
    commit(tmp_path, [0], 1, "old")
    assert frames.reading(RUN, TABLE.name, lambda table: table.tick(0, ["organism_id"])).num_rows == 1
    shutil.rmtree(tmp_path / RUN / TABLE.name)
    for seconds in (0.0, FRESH_SECONDS * 2):
        clock.now += seconds
        with pytest.raises(TableNotInRun):
            frames.reading(RUN, TABLE.name, lambda table: table.tick(0, ["organism_id"]))


def test_the_world_is_that_of_the_metadata_that_is_there(tmp_path: Path) -> None:
    clock = Clock()
    frames = Frames(Catalog(tmp_path), clock)
    assert frames.world(RUN) is None
    for step in (7, 3):
        world = EnvironmentConfig(dimensions=1, shape=[step], toroidal=[True])
        metadata = SimulationMetadata(simulation_run_id=RUN, environment=world, sampling_interval=step)
        write_metadata(Location.of(tmp_path / RUN / "metadata"), metadata)
        clock.now += FRESH_SECONDS * 2
        found = frames.world(RUN)
        assert found is not None and (found.sampling_interval, list(found.shape)) == (step, [step])
        shutil.rmtree(tmp_path / RUN)
        clock.now += FRESH_SECONDS * 2
        assert frames.world(RUN) is None


def test_what_a_table_has_is_not_remembered_for_another_of_its_name(tmp_path: Path) -> None:
    presence, catalog = Presence(), Catalog(tmp_path)
    for ticks in ([0, 1, 2], [1, 5]):
        commit(tmp_path, ticks, 1, "same-name")
        found = presence.ranges(catalog, RUN, TABLE.name, 1)
        assert found == ([TickRange(0, 2)] if ticks[0] == 0 else [TickRange(1, 1), TickRange(5, 5)])
        shutil.rmtree(tmp_path / RUN)


def test_a_table_that_is_moved_away_while_it_is_opened_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(tmp_path / "lake", [1], 1, "before")
    read = DeltaLog._read_table
    moved: list[str] = []

    def read_and_move(log: DeltaLog, folder: TableFolder) -> Head:
        head = read(log, folder)
        if not moved:
            moved.append(str(shutil.move(str(log.location), tmp_path / "away")))
        return head

    monkeypatch.setattr(DeltaLog, "_read_table", read_and_move)
    commit(tmp_path / "lake", [2], 1, "after")
    assert moved
    assert Lake(tmp_path / "lake").ledger(RUN, TABLE).present([TickRange(0, 9)]).tolist() == [2]
