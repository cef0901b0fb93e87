"""Newer runs of the original: every figure that an independent decoder found is in the tables, in any order."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from tests.crash.original import RUN, Organism, Tick, file_of, metadata

from ticklake.completeness.completeness import Completeness
from ticklake.completeness.judging import Verdict
from ticklake.completeness.verdicts import RunVerdict
from ticklake.indexers.base import IndexerResources
from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.indexers.builtin.organism import OrganismIndexer
from ticklake.indexers.finished_run import FinishedRun
from ticklake.lake.lake import Lake
from ticklake.lake.read.catalog import Catalog
from ticklake.storage.files import Storage
from ticklake.ticks import TickRange
from ticklake.topics import Database

DATA = Path(__file__).parents[1] / "data"
SHARED = Path(__file__).parents[3] / "shared" / "data" / "newer"
RESUMED = "20261116-13544087-6f32c9e9-85d9-417e-98b0-2fa0daac03ff"
EVERY_TICK = "20261116-13530649-a0c3adcd-127c-4805-863a-5c402d9fe4df"
TYPES = ("CODE", "DATA", "ENERGY", "STRUCTURE", "LABEL", "LABELREF", "REGISTER", "STATE")
Index = Callable[..., dict[str, Any]]


@pytest.fixture
def index(spark: SparkSession, tmp_path: Path) -> Index:
    """Indexes ranges of a run, one after the other, and returns its tables in the order of their keys."""

    def index(storage: Path, run_id: str, *parts: TickRange | None) -> dict[str, Any]:
        lake = tmp_path / f"lake-{len(list(tmp_path.iterdir()))}"
        resources = IndexerResources(Storage(storage), Lake(lake), spark=lambda: spark)
        for part in parts or (None,):
            work = FinishedRun(resources, run_id, [EnvironmentIndexer, OrganismIndexer], part).start()
            while not work.wait(60):
                pass
        found: dict[str, Any] = {}
        for table, key in (("environment_data", "cell_id"), ("organism_data", "organism_id")):
            rows = DeltaTable(lake / run_id / table).to_pyarrow_table()
            found[table] = rows.sort_by([("tick_number", "ascending"), (key, "ascending")])
            commits = DeltaTable(lake / run_id / table).history()
            sources = [json.loads(one.get("ticklake.sources", "[]")) for one in commits]
            found["formats"] = sorted({source["format"] for commit in sources for source in commit})
        found["verdict"] = Completeness(run_id, Storage(storage), Catalog(lake), ended=True).verify(spark=spark)
        return found

    return index


def check(tables: dict[str, pa.Table], expected: dict[str, Any]) -> None:
    cells, organisms = tables["environment_data"], tables["organism_data"]
    step, created, genomes = expected["sampling_interval"], 0, {0}
    assert set(cells["tick_number"].unique().to_pylist()) == {one["tick"] for one in expected["ticks"]}
    for one in expected["ticks"]:
        there = at(organisms, one["tick"])
        created = max(created, *there["organism_id"].to_pylist(), 0)
        genomes |= set(there["genome_hash"].to_pylist())
        figures = cell_figures(at(cells, one["tick"])) | organism_figures(there, one["tick"], step)
        figures |= {"total_organisms_created": created, "total_unique_genomes": len(genomes) - 1}
        assert figures == {name: one[name] for name in figures}
    lives = lives_in(organisms)
    assert lives.keys() == {one["id"] for one in expected["organisms"]}
    for one in expected["organisms"]:
        found = lives[one["id"]]
        assert found == {name: one[name] for name in found}


def at(table: pa.Table, tick: int) -> pa.Table:
    ticks = table["tick_number"].to_numpy()
    first, end = np.searchsorted(ticks, [tick, tick + 1])
    return table.slice(first, end - first)


def cell_figures(cells: pa.Table) -> dict[str, Any]:
    names = ("cell_id", "state", "owner_id", "type", "molecule_value", "marker")
    column = {name: cells[name].to_numpy() for name in names}
    triples = np.stack([column[name] for name in ("cell_id", "state", "owner_id")], axis=1).astype("<i4")
    return {
        "cells": cells.num_rows,
        "sum_flat_index": int(column["cell_id"].sum()),
        "sum_molecule_value": int(column["molecule_value"].sum()),
        "sum_owner_id": int(column["owner_id"].sum()),
        "cells_by_type": {
            name: count for kind, name in enumerate(TYPES) if (count := int((column["type"] == kind).sum()))
        },
        "value_zero_code_cells": int(((column["type"] == 0) & (column["molecule_value"] == 0)).sum()),
        "marked_cells": int((column["marker"] > 0).sum()),
        "owned_cells": int((column["owner_id"] != 0).sum()),
        "cells_sha256": hashlib.sha256(triples.tobytes()).hexdigest(),
    }


def organism_figures(organisms: pa.Table, tick: int, step: int) -> dict[str, Any]:
    rows = organisms.to_pylist()
    alive = [row for row in rows if not row["is_dead"]]
    return {
        "alive": len(alive),
        "dead": len(rows) - len(alive),
        "organism_ids_sum": sum(row["organism_id"] for row in rows),
        "sum_energy_alive": sum(row["energy"] for row in alive),
        "sum_entropy_alive": sum(row["entropy"] for row in alive),
        "born_here": sum(row["birth_tick"] > tick - step for row in rows),
        "genomes_alive": len({row["genome_hash"] for row in alive} - {0}),
        "failed_instructions_alive": sum(row["instruction_failed"] and row["opcode"] is not None for row in alive),
    }


def lives_in(organisms: pa.Table) -> dict[int, dict[str, Any]]:
    rows: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in organisms.to_pylist():
        rows[row["organism_id"]].append(row)
    children = Counter(seen[0]["parent_id"] for seen in rows.values())
    return {id_: life_of(seen) | {"children": children[id_]} for id_, seen in rows.items()}


def life_of(seen: list[dict[str, Any]]) -> dict[str, Any]:
    first, last = seen[0], seen[-1]
    return {
        "parent": first["parent_id"],
        "birth_tick": first["birth_tick"],
        "program": first["program_id"],
        "genome_hash": first["genome_hash"],
        "initial_position": [first["initial_x"], first["initial_y"]],
        "first_seen": first["tick_number"],
        "last_seen": last["tick_number"],
        "rows": len(seen),
        "death_tick": last["death_tick"],
        "energy_at_death": last["energy"] if last["is_dead"] else None,
        "entropy_at_death": last["entropy"] if last["is_dead"] else None,
        "max_energy": max(row["energy"] for row in seen),
    }


def test_every_figure_of_a_resumed_run_is_in_the_tables_whichever_file_comes_first(index: Index) -> None:
    expected = json.loads((DATA / "newer" / RESUMED / "EXPECTED.json").read_text())
    tables = index(DATA / "newer", RESUMED)
    check(tables, expected)
    assert tables["organism_data"]["generation"].null_count == tables["organism_data"].num_rows
    backwards = index(DATA / "newer", RESUMED, TickRange(504, 833), TickRange(330, 497), TickRange(0, 329))
    assert tables["formats"] == ["E"]
    for verdict in (tables.pop("verdict"), backwards.pop("verdict")):
        assert (verdict.verdict, verdict.storage.format, verdict.storage.overlapping) == (Verdict.COMPLETE, "E", 1)
        assert [table.deep.flaws for table in verdict.tables if table.deep] == [0, 0]
    assert backwards == tables


def test_the_contract_since_september_2026_gives_the_same_rows_and_two_more_columns(index: Index) -> None:
    expected = json.loads((DATA / "newer" / RESUMED / "EXPECTED.json").read_text())
    tables = index(DATA / "newer-synthetic", RESUMED)
    check(tables, expected)
    organisms = tables["organism_data"]
    generations = dict(zip(organisms["organism_id"].to_pylist(), organisms["generation"].to_pylist(), strict=True))
    assert generations == {one["id"]: one["generation"] for one in expected["organisms"]}
    parents = dict(zip(organisms["organism_id"].to_pylist(), organisms["parent_genome_hash"].to_pylist(), strict=True))
    assert parents == {one["id"]: one.get("parent_genome_hash") for one in expected["organisms"]}
    assert pc.all(pc.equal(organisms["age"], pc.subtract(organisms["tick_number"], organisms["birth_tick"]))).as_py()


@pytest.mark.parametrize("era", ["G", *(pytest.param(era, marks=pytest.mark.slow) for era in "DEF")])
def test_chunks_in_any_order_twice_and_in_overlapping_slices_give_the_tables_of_a_clean_pass(
    index: Index, tmp_path: Path, era: str
) -> None:
    folder = tmp_path / "storage" / RUN / "raw"
    folder.mkdir(parents=True)
    (folder / "metadata.pb").write_bytes(metadata(era))
    for ticks in (range(40), range(25, 60), range(60, 80)):  # the second as after a resume
        cells = [{(tick * step) % 100: (1 << 20 | tick, 1) for step in range(1, 9)} for tick in ticks]
        found = [Tick(tick, there, [Organism(1)]) for tick, there in zip(ticks, cells, strict=True)]
        (folder / f"batch_{ticks[0]}_{ticks[-1]}.pb").write_bytes(file_of(era, found, chunk=10))
    clean = index(tmp_path / "storage", RUN)
    parts = [TickRange(57, 71), TickRange(3, 33), TickRange(28, 45), TickRange(64, 79)]
    other = index(tmp_path / "storage", RUN, *parts, *parts, None, None)
    for found in (clean, other):
        assert (found.pop("verdict").verdict, found["formats"]) == (Verdict.COMPLETE, [era])
    assert other == clean
    assert set(clean["environment_data"]["tick_number"].to_pylist()) == set(range(80))


@dataclass
class Sampled:
    """A run of era G that samples every 10th tick. Each stretch of ticks becomes a file, in chunks of five."""

    root: Path
    spark: SparkSession

    def begin(self, fork: tuple[int, int] | None = None) -> Sampled:
        (self.root / RUN / "raw").mkdir(parents=True)
        (self.root / RUN / "raw" / "metadata.pb").write_bytes(metadata("G", step=10, fork=fork))
        return self

    def add(self, *files: range) -> None:
        for ticks in files:
            found = [Tick(tick, {tick % 100: (1 << 20 | tick % 1000, 1)}, [Organism(1, energy=tick)]) for tick in ticks]
            name = f"batch_{ticks[0]:019d}_{ticks[-1]:019d}.pb"
            (self.root / RUN / "raw" / name).write_bytes(file_of("G", found))

    def index(self, database: Database | None = None) -> None:
        resources = IndexerResources(Storage(self.root), Lake(self.root / "lake"), database, spark=lambda: self.spark)
        run = FinishedRun(resources, RUN, [EnvironmentIndexer, OrganismIndexer]).prepare()
        if any(run.ticks_left().values()):
            run.start()
            while not run.wait(60):
                pass
        assert not [one.failed for one in run.progress() if one.failed]

    def ticks(self) -> list[int]:
        table = DeltaTable(self.root / "lake" / RUN / "organism_data").to_pyarrow_table()
        assert table["energy"].to_pylist() == table["tick_number"].to_pylist()
        return sorted(table["tick_number"].to_pylist())

    def verify(self, *databases: Database, deeply: bool = False) -> RunVerdict:
        spark = self.spark if deeply else None
        return Completeness(RUN, Storage(self.root), Catalog(self.root / "lake"), *databases, ended=True).verify(
            spark=spark
        )


@pytest.fixture
def sampled(spark: SparkSession, tmp_path: Path) -> Sampled:
    return Sampled(tmp_path, spark)


def test_denser_and_coarser_stretches_are_indexed_and_judged_by_their_own_interval(sampled: Sampled) -> None:
    sampled.begin().add(range(0, 100, 10), range(100, 150), range(150, 300, 10), range(300, 1300, 100))
    sampled.index()
    recorded = [*range(0, 100, 10), *range(100, 150), *range(150, 300, 10), *range(300, 1300, 100)]
    assert sampled.ticks() == recorded
    found = sampled.verify(deeply=True)
    assert (found.verdict, found.storage.lost, found.storage.misfits) == (Verdict.COMPLETE, [], [])
    assert [(table.coverage.ticks, table.coverage.expected_ticks) for table in found.tables] == [(85, 85)] * 2
    # A dense window over ticks that are indexed already: only its other ticks are new.
    sampled.add(range(500, 550))
    assert [table.coverage.waiting for table in sampled.verify().tables] == [[TickRange(501, 549)]] * 2
    sampled.index()
    sampled.index()
    assert sampled.ticks() == sorted({*recorded, *range(500, 550)})
    assert sampled.verify().verdict is Verdict.COMPLETE
    next((sampled.root / RUN / "raw").glob(f"batch_{100:019d}_*")).unlink()
    assert sampled.verify().storage.lost == [TickRange(100, 140)]


def test_a_coordinator_calls_no_tick_missing_that_a_coarser_stretch_never_recorded(
    sampled: Sampled, tmp_path: Path
) -> None:
    sampled.begin().add(range(0, 100, 10), range(100, 1100, 100), range(1100, 2100, 100), range(2200, 3200, 100))
    with Database(f"sqlite:///{tmp_path / 'database'}") as database:
        sampled.index(database)
        for table in sampled.verify(database).tables:
            assert [gap.ticks for gap in table.gaps] == table.coverage.lost == [TickRange(2100, 2100)]
        sampled.add(range(2100, 2200, 10), range(3200, 3300))
        sampled.index(database)
        found = sampled.verify(database)
        assert found.verdict is Verdict.COMPLETE and not any(table.gaps for table in found.tables)


def test_the_ticks_before_a_fork_are_not_lost(sampled: Sampled, tmp_path: Path) -> None:
    sampled.begin(fork=(1000, 1999)).add(range(1000, 1100, 10), range(1100, 1150))
    with Database(f"sqlite:///{tmp_path / 'database'}") as database:
        sampled.index(database)
        found = sampled.verify(database)
        assert (found.verdict, found.storage.lost) == (Verdict.COMPLETE, [])
        assert not any(table.gaps for table in found.tables)


def test_a_run_that_begins_late_and_is_no_fork_has_lost_its_first_ticks(sampled: Sampled) -> None:
    sampled.begin().add(range(1000, 1100, 10))
    sampled.index()
    assert sampled.verify().storage.lost == [TickRange(0, 990)]


@pytest.mark.skipif(not SHARED.exists(), reason="the run of every tick, ../shared/data/newer, is not here")
def test_every_figure_of_a_run_of_every_tick_is_in_the_tables(index: Index) -> None:
    check(index(SHARED, EVERY_TICK), json.loads((SHARED / EVERY_TICK / "EXPECTED.json").read_text()))
