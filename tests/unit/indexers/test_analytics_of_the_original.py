"""Analytics of real runs: equal to what the original's own analysis found, and the same in any order of the files."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from in_process import InProcess

from ticklake.completeness.completeness import Completeness
from ticklake.completeness.judging import Verdict
from ticklake.indexers.analytics import PER_TICK
from ticklake.indexers.base import IndexerResources
from ticklake.indexers.finished_run import FinishedRun
from ticklake.lake.lake import Lake
from ticklake.lake.read.catalog import Catalog
from ticklake.storage.files import Storage
from ticklake.ticks import TickRange

DATA = Path(__file__).parents[2] / "data"
SHARED = Path(__file__).parents[4] / "shared" / "data" / "newer"
RESUMED = "20261116-13544087-6f32c9e9-85d9-417e-98b0-2fa0daac03ff"
EVERY_TICK = "20261116-13530649-a0c3adcd-127c-4805-863a-5c402d9fe4df"
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
CELLS = ("code", "data", "energy", "structure", "label", "labelref", "register")
MAX_ENERGY, MAX_ENTROPY, WORLD = 150_000, 10_000, 96 * 64

Analyze = Callable[..., dict[str, pa.Table]]
Row = dict[str, Any]


@pytest.fixture
def analyze(tmp_path: Path) -> Iterator[Analyze]:
    """Makes all tables of a run, from some ranges of its ticks one after the other, and checks them with `verify`."""
    lakes = (tmp_path / f"lake-{number}" for number in range(9))

    def analyze(root: Path, run_id: str, *parts: TickRange | None) -> dict[str, pa.Table]:
        lake = next(lakes)
        resources = IndexerResources(Storage(root), Lake(lake), spark=InProcess)
        for part in parts or (None,):
            work = FinishedRun(resources, run_id, PER_TICK, part).start()
            while not work.wait(60):
                pass
            work.stop()
        verdict = Completeness(run_id, Storage(root), Catalog(lake), ended=True).verify(spark=InProcess())
        assert verdict.verdict is Verdict.COMPLETE
        assert [table.deep.flaws for table in verdict.tables if table.deep] == [0] * len(PER_TICK)
        return {kind.table.name: rows_of(lake / run_id, kind) for kind in PER_TICK}

    yield analyze


def rows_of(lake: Path, kind: Any) -> pa.Table:
    rows = DeltaTable(lake / kind.table.name).to_pyarrow_table()
    return rows.sort_by([(name, "ascending") for name in kind.table.key])


def original(root: Path, run_id: str, metric: str) -> dict[int, Row]:
    """The rows of a metric by tick. After a resume, the original has the ticks of overlapping files twice."""
    found: dict[int, Row] = {}
    for file in sorted((root / run_id / "analytics" / metric).rglob("*.parquet")):
        for row in pq.ParquetFile(file).read().to_pylist():
            assert found.setdefault(row["tick"], row) == row
    return found


def label(genome: int) -> str:
    rest, text = genome % (1 << 64), ""
    for _ in range(6):
        text = DIGITS[rest % 62] + text
        rest //= 62
    return text


def close(value: float) -> Any:
    return pytest.approx(value, abs=1e-9)


def check(tables: dict[str, pa.Table], root: Path, run_id: str) -> None:
    """Compares everything that a single tick tells. `generation_depth` needs more, so it is not here."""
    metrics = {name: original(root, run_id, name) for name in (
        "population", "vital_stats", "age_distribution", "genome", "instruction_usage", "environment_composition",
    )}  # fmt: skip
    by_tick: dict[str, dict[int, list[Row]]] = {}
    for name, table in tables.items():
        by_tick[name] = defaultdict(list)
        for row in table.to_pylist():
            by_tick[name][row["tick_number"]].append(row)
    assert metrics["population"].keys() == by_tick["tick_stats"].keys()
    for tick, (row,) in by_tick["tick_stats"].items():
        at = {name: rows[tick] for name, rows in metrics.items()}
        check_stats(row, at)
        genomes = {
            label(one["genome_hash"]): one["alive"]
            for one in by_tick["genome_counts"][tick]
            if one["alive"] and one["genome_hash"]
        }
        assert genomes == {name: count for name, count in json.loads(at["genome"]["genome_data"]).items() if count}
        check_instructions(by_tick["instruction_counts"][tick], at["instruction_usage"])
        check_cells(by_tick["cell_stats"][tick], at["environment_composition"])
        programs = by_tick["program_counts"][tick]
        assert (len(programs), sum(one["alive"] for one in programs)) == (row["programs"], row["alive"])
        assert sum(one["energy_sum"] for one in programs) == row["energy_sum"]


def check_stats(row: Row, at: dict[str, Row]) -> None:
    alive, population, genome = row["alive"], at["population"], at["genome"]
    assert alive == population["alive_count"] == at["vital_stats"]["alive_count"]
    assert row["total_created"] == at["vital_stats"]["total_born"]
    assert close(population["avg_energy"]) == row["energy_sum"] / max(alive, 1) / MAX_ENERGY * 100
    assert close(population["avg_entropy"]) == row["entropy_sum"] / max(alive, 1) / MAX_ENTROPY * 100
    for percent in (0, 10, 25, 50, 75, 90, 100):
        age = row[f"age_p{percent}"]
        assert (age is None) == (alive == 0)
        assert (age or 0) == at["age_distribution"][f"p{percent}"]  # the original writes 0 where nobody lives
    assert (row["genomes"], row["total_genomes"]) == (genome["active_genomes"], genome["total_genomes"])
    assert close(genome["shannon_index"]) == row["genome_entropy"]
    assert close(genome["dominant_share"]) == row["dominant_count"] / max(row["bodied"], 1)
    families = {name: count for name, count in at["instruction_usage"].items() if name != "tick"}
    assert row["failed"] == families.pop("failure_count")
    assert row["executed"] == sum(families.values())


def check_instructions(rows: list[Row], usage: Row) -> None:
    families = Counter({name: count for name, count in usage.items() if name not in ("tick", "failure_count")})
    assert sum(row["executed"] for row in rows) == families.total()
    assert sum(row["failed"] for row in rows) == usage["failure_count"]
    # Opcode 0 is NOP, the only one of its family.
    assert sum(row["executed"] for row in rows if row["opcode"] == 0) == families["nop"]


def check_cells(rows: list[Row], composition: Row) -> None:
    found: Counter[int] = Counter()
    for row in rows:
        # Evochora counts CODE with the value 0 as empty.
        found[row["molecule_type"]] += row["cells"] - (row["zero_cells"] if row["molecule_type"] == 0 else 0)
    assert [found[kind] for kind in range(7)] == [composition[f"{name}_cells"] for name in CELLS]
    assert WORLD - found.total() == composition["empty_cells"]


def check_invariants(tables: dict[str, pa.Table], expected: Row) -> None:
    births, deaths = (tables[name].to_pylist() for name in ("births", "deaths"))
    assert sorted(row["organism_id"] for row in births) == sorted(one["id"] for one in expected["organisms"])
    assert len({row["organism_id"] for row in deaths}) == len(deaths)
    born = Counter(row["tick_number"] for row in births)
    died = Counter(row["tick_number"] for row in deaths)
    bodied: Counter[int] = Counter()
    for row in tables["genome_counts"].to_pylist():
        bodied[row["tick_number"]] += row["alive"] if row["genome_hash"] else 0
    for row, one in zip(tables["tick_stats"].to_pylist(), expected["ticks"], strict=True):
        tick = row["tick_number"]
        assert (row["births"], row["deaths"], row["exact"]) == (born[tick], died[tick], True)
        assert sum(count for at, count in born.items() if at <= tick) == row["total_created"]
        assert row["total_created"] - sum(count for at, count in died.items() if at <= tick) == row["alive"]
        assert bodied[tick] == row["bodied"]
        assert (row["energy_sum"], row["entropy_sum"]) == (one["sum_energy_alive"], one["sum_entropy_alive"])
        assert (tick, row["dead"], row["births"]) == (one["tick"], one["dead"], one["born_here"])
    check_lives(births, deaths, expected)


def check_lives(births: list[Row], deaths: list[Row], expected: Row) -> None:
    lives = {one["id"]: one for one in expected["organisms"]}
    for row in births:
        one = lives[row["organism_id"]]
        parent = lives.get(one["parent"], {})
        assert (row["birth_tick"], row["parent_id"], row["genome_hash"], row["program_id"]) == (
            one["birth_tick"], one["parent"], one["genome_hash"], one["program"],
        )  # fmt: skip
        assert (row["parent_birth_tick"], row["parent_genome_hash"]) == (
            parent.get("birth_tick"),
            parent.get("genome_hash"),
        )
        assert [row["x0"], row["y0"], row["z0"]] == [*one["initial_position"], None]
    for row in deaths:
        one = lives[row["organism_id"]]
        assert (row["death_tick"], row["energy"], row["entropy"]) == (
            one["death_tick"], one["energy_at_death"], one["entropy_at_death"],
        )  # fmt: skip
        assert row["lifespan"] == one["death_tick"] - one["birth_tick"]
        assert row["cause"] == ("energy" if row["energy"] <= 0 else "entropy")


def test_a_resumed_run_has_the_originals_figures_whichever_file_comes_first(analyze: Analyze) -> None:
    root = DATA / "newer"
    expected = json.loads((root / RESUMED / "EXPECTED.json").read_text())
    tables = analyze(root, RESUMED)
    check(tables, root, RESUMED)
    check_invariants(tables, expected)
    assert tables["births"]["generation"].null_count == tables["births"]["mutations"].null_count == 66
    backwards = analyze(root, RESUMED, TickRange(504, 833), TickRange(330, 497), TickRange(0, 329))
    assert backwards == tables
    later = analyze(DATA / "newer-synthetic", RESUMED)
    check_invariants(later, expected)
    generations = dict(
        zip(later["births"]["organism_id"].to_pylist(), later["births"]["generation"].to_pylist(), strict=True)
    )
    assert generations == {one["id"]: one["generation"] for one in expected["organisms"]}
    added = ["generation", "mutations"]
    assert later.pop("births").drop(added) == tables.pop("births").drop(added)
    assert later == tables


@pytest.mark.skipif(not SHARED.exists(), reason="the run of every tick, ../shared/data/newer, is not here")
def test_a_run_of_every_tick_has_the_originals_figures(analyze: Analyze) -> None:
    tables = analyze(SHARED, EVERY_TICK)
    check(tables, SHARED, EVERY_TICK)
    check_invariants(tables, json.loads((SHARED / EVERY_TICK / "EXPECTED.json").read_text()))
