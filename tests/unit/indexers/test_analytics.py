"""Analytics of small random runs: equal to what plain Python finds in the lives that were simulated."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.crash.original import RUN, Mutation, Organism, Tick, file_of

from ticklake.indexers.analytics import (
    PER_TICK,
    BirthsIndexer,
    CellStatsIndexer,
    DeathsIndexer,
    GenomeCountsIndexer,
    InstructionCountsIndexer,
    MutationEventsIndexer,
    ProgramCountsIndexer,
    TickStatsIndexer,
)
from ticklake.indexers.batch import BatchIndexer
from ticklake.storage import zstd
from ticklake.storage.codec import read_ticks
from ticklake.storage.files import Storage
from ticklake.ticks import TickRange
from ticklake.world import World

MAX_ENTROPY = 10_000
Row = dict[str, Any]


@dataclass
class Run:
    """A simulated run: every organism that ever lived, and what was recorded."""

    era: str
    step: int
    lives: dict[int, Organism] = field(default_factory=dict)
    ticks: list[Tick] = field(default_factory=list)

    @property
    def world(self) -> World:
        return World(RUN, (10, 10), (True, True), self.step, MAX_ENTROPY)

    def alive(self, tick: int) -> list[Organism]:
        """Those that are in the recording, and live."""
        (found,) = [one.organisms for one in self.ticks if one.number == tick]
        return [one for one in found if not one.is_dead]

    def since(self, tick: int, when: int | None) -> bool:
        """Whether something happened after the recording before."""
        return when is not None and tick - self.step < when <= tick


def simulated(seed: int, era: str, step: int, recordings: int) -> Run:
    """Organisms are born, mutate and die at random. The dead are recorded once, but not by older builds."""
    draw, run = random.Random(seed), Run(era, step)
    living: list[Organism] = []
    for tick in range((recordings - 1) * step + 1):
        parents = draw.sample(living, min(len(living), draw.randrange(3)))
        for parent in parents or ([None] if tick == 0 or draw.random() < 0.2 else []):
            living.append(born(draw, run, parent, tick))
        for one in draw.sample(living, draw.randrange(len(living) + 1) if draw.random() < 0.5 else 0):
            living.remove(one)
            one.is_dead, one.death = True, tick
            one.energy, one.entropy = draw.choice([(0, 5), (-3, MAX_ENTROPY), (4, MAX_ENTROPY), (9, 9)])
        for one in living:
            one.energy, one.entropy = draw.randint(1, 2**31 - 1), draw.randrange(MAX_ENTROPY)
            one.opcode = draw.choice([None, 0, 1, 2500])
            one.failure = draw.choice([None, "no energy"])
        if tick % step == 0:
            dead = [one for one in run.lives.values() if run.since(tick, one.death)] if era in "EFG" else []
            recorded = [replace(one) for one in [*living, *dead]]
            draw.shuffle(recorded)
            cells = {flat: (some_molecule(draw, era), draw.randrange(3)) for flat in draw.sample(range(100), 9)}
            genomes = len({one.genome for one in run.lives.values()} - {0})
            run.ticks.append(Tick(tick, cells, recorded, len(run.lives), genomes))
    return run


def born(draw: random.Random, run: Run, parent: Organism | None, tick: int) -> Organism:
    events = [
        Mutation("Plugin", "substitution", [5, 5], [1, -2], [3, 4], [0, -1]),
        Mutation("Other", "label-rewrite"),
    ]
    mutations = draw.sample(events, draw.randrange(3))
    one = Organism(
        len(run.lives) + 1,
        parent.id if parent else None,
        tick,
        genome=draw.choice([0, 7, -(2**63), 2**63 - 1]),
        generation=parent.generation + 1 if parent else 0,
        program=draw.choice(["p", "q"]),
        parent_genome=parent.genome if parent else 0,
        mutations=mutations,
    )
    run.lives[one.id] = one
    return one


def some_molecule(draw: random.Random, era: str) -> int:
    value = draw.choice([0, 0, 1, -3, 2**15 - 1 if era == "A" else 2**19 - 1])
    marker = 0 if era == "A" else draw.choice([0, 0, 9])
    return marker << 28 | draw.choice([1, 1, 2, 7]) << 20 | value & 0xFFFFF


runs = st.builds(
    simulated,
    st.integers(0, 2**32),
    st.sampled_from("EFG"),
    st.integers(1, 4),
    st.integers(2, 9),
)
old_runs = st.builds(simulated, st.integers(0, 2**32), st.sampled_from("ABCD"), st.integers(1, 3), st.integers(1, 9))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("analytics")
    return (root / str(number) for number in range(10**6))


@dataclass
class Tables:
    """Makes the tables of a run, in batches of a few bytes or in one."""

    run: Run
    root: Path
    chunk_bytes: int

    def __post_init__(self) -> None:
        ticks = TickRange(self.run.ticks[0].number, self.run.ticks[-1].number)
        path = self.root / RUN / "raw" / f"batch_{ticks.start:019d}_{ticks.end:019d}.pb.zst"
        path.parent.mkdir(parents=True)
        path.write_bytes(zstd.compress(file_of(self.run.era, self.run.ticks)))
        self._file = Storage(self.root).batch(f"{RUN}/raw/{path.name}")

    def of(self, kind: type[BatchIndexer]) -> list[Row]:
        """The rows of a table, from a read that has the fields of all others too, as in a shared read."""
        assert kind.table is not None
        fields = tuple(dict.fromkeys(path for one in PER_TICK for path in one.reads))
        rows = [self._rows(kind, kind.reads, self.chunk_bytes), self._rows(kind, fields, 1 << 20)]
        first, second = (part.sort_by([(name, "ascending") for name in kind.table.key]) for part in rows)
        assert first == second
        return first.to_pylist()

    def _rows(self, kind: type[BatchIndexer], fields: tuple[str, ...], chunk_bytes: int) -> pa.Table:
        world = self.run.world
        batches = read_ticks(Storage(self.root), self._file, fields=fields, world=world, chunk_bytes=chunk_bytes)
        return pa.Table.from_batches([kind.rows(batch, world) for batch in batches], schema=kind.table.schema)


@given(runs, st.sampled_from([1, 500, 1 << 20]))
def test_each_organism_is_born_once_and_each_dead_one_dies_once(folders: Any, run: Run, chunk_bytes: int) -> None:
    tables = Tables(run, next(folders), chunk_bytes)
    births, deaths = tables.of(BirthsIndexer), tables.of(DeathsIndexer)
    assert [row["organism_id"] for row in births] == sorted(run.lives)
    for row in births:
        one = run.lives[row["organism_id"]]
        parent = run.lives.get(one.parent or 0)
        found = tuple(row[name] for name in ("birth_tick", "parent_id", "genome_hash", "program_id", "exact"))
        assert found == (one.birth, one.parent, one.genome, one.program, True)
        assert row["parent_birth_tick"] == (parent.birth if parent else None)
        assert row["parent_genome_hash"] == (parent.genome if parent else None)
        assert row["generation"] == (None if run.era == "E" else one.generation)
        assert (row["x0"], row["y0"], row["z0"]) == (3, 4, None)
        assert run.since(row["tick_number"], one.birth)
        counted = {"E": None, "F": len(one.mutations) or None, "G": len(one.mutations)}
        assert row["mutations"] == counted[run.era]
    assert sorted(row["organism_id"] for row in deaths) == [one.id for one in run.lives.values() if one.is_dead]
    for row in deaths:
        one = run.lives[row["organism_id"]]
        found = tuple(row[name] for name in ("death_tick", "birth_tick", "lifespan", "energy", "entropy"))
        assert found == (one.death, one.birth, one.death - one.birth, one.energy, one.entropy)
        assert run.since(row["tick_number"], one.death)
        assert row["cause"] == ("energy" if one.energy <= 0 else "entropy" if one.entropy >= MAX_ENTROPY else "other")
        assert (row["failed"], row["failure_reason"]) == (one.failure is not None, one.failure)
        assert (row["x"], row["y"], row["z"]) == (1, 2, None)


@given(runs, st.sampled_from([1, 500, 1 << 20]))
def test_the_figures_of_a_tick_are_those_of_its_living(folders: Any, run: Run, chunk_bytes: int) -> None:
    tables = Tables(run, next(folders), chunk_bytes)
    created = deaths = 0
    for row, tick in zip(tables.of(TickStatsIndexer), run.ticks, strict=True):
        alive = run.alive(tick.number)
        assert row == expected_figures(run, tick, alive)
        created += row["births"]
        deaths += row["deaths"]
        assert (created, created - deaths) == (row["total_created"], row["alive"])


def expected_figures(run: Run, tick: Tick, alive: list[Organism]) -> Row:
    ages = sorted(tick.number - one.birth for one in alive)
    energies, entropies = [one.energy for one in alive], [one.entropy for one in alive]
    genomes = Counter(one.genome for one in alive if one.genome)
    shares = [count / genomes.total() for _, count in sorted(genomes.items())]
    dominant = min(genomes, key=lambda genome: (-genomes[genome], genome), default=None)
    acting = [one for one in alive if one.opcode is not None]
    dead = sum(run.since(tick.number, one.death) for one in run.lives.values())
    return {
        "tick_number": tick.number,
        "alive": len(alive),
        "dead": dead,
        "births": sum(run.since(tick.number, one.birth) for one in run.lives.values()),
        "deaths": dead,
        "energy_sum": sum(energies),
        "energy_min": min(energies, default=None),
        "energy_max": max(energies, default=None),
        "entropy_sum": sum(entropies),
        "entropy_max": max(entropies, default=None),
        **{
            f"age_p{p}": ages[math.floor((len(ages) - 1) * p / 100 + 0.5)] if ages else None
            for p in (0, 10, 25, 50, 75, 90, 100)
        },
        "genomes": len(genomes),
        "bodied": genomes.total(),
        "genome_entropy": pytest.approx(-sum(share * math.log(share) for share in shares), abs=1e-9),
        "genome_simpson": pytest.approx(sum(share**2 for share in shares), abs=1e-9),
        "dominant_genome": dominant,
        "dominant_count": genomes[dominant],
        "programs": len({one.program for one in alive}),
        "failed": sum(one.failure is not None for one in acting),
        "executed": len(acting),
        "total_created": tick.created,
        "total_genomes": tick.genomes or None,  # 0 is not written
        "exact": True,
    }


@given(runs, st.sampled_from([1, 500, 1 << 20]))
def test_counts_are_those_of_each_genome_program_and_opcode(folders: Any, run: Run, chunk_bytes: int) -> None:
    tables = Tables(run, next(folders), chunk_bytes)
    genomes: list[Row] = []
    programs: list[Row] = []
    opcodes: list[Row] = []
    for tick in run.ticks:
        number, alive = tick.number, run.alive(tick.number)
        for genome in sorted({one.genome for one in tick.organisms}):
            carriers = [one for one in tick.organisms if one.genome == genome]
            living = [one for one in carriers if not one.is_dead]
            genomes.append({
                "tick_number": number,
                "genome_hash": genome,
                "alive": len(living),
                "newborn": sum(run.since(number, one.birth) for one in carriers),
                "died": len(carriers) - len(living),
                "energy_sum": sum(one.energy for one in living),
                "oldest_birth_tick": min((one.birth for one in living), default=None),
            })  # fmt: skip
        for program in sorted({one.program for one in alive}):
            energies = [one.energy for one in alive if one.program == program]
            programs.append(
                {"tick_number": number, "program_id": program, "alive": len(energies), "energy_sum": sum(energies)}
            )
        for opcode in sorted({one.opcode for one in alive if one.opcode is not None}):
            acting = [one for one in alive if one.opcode == opcode]
            failed = sum(one.failure is not None for one in acting)
            opcodes.append({"tick_number": number, "opcode": opcode, "executed": len(acting), "failed": failed})
    assert tables.of(GenomeCountsIndexer) == genomes
    assert tables.of(ProgramCountsIndexer) == programs
    assert tables.of(InstructionCountsIndexer) == opcodes


@given(runs | old_runs, st.sampled_from([1, 500, 1 << 20]))
def test_cells_are_counted_by_type_and_ownership(folders: Any, run: Run, chunk_bytes: int) -> None:
    expected: list[Row] = []
    for tick in run.ticks:
        cells = [
            (molecule >> 20 & 0xFF, owner != 0, (molecule & 0xFFFFF ^ 0x80000) - 0x80000, molecule >> 28)
            for molecule, owner in tick.cells.values()
        ]
        for kind, owned in sorted({cell[:2] for cell in cells}):
            values = [cell[2] for cell in cells if cell[:2] == (kind, owned)]
            marked = sum(cell[3] != 0 for cell in cells if cell[:2] == (kind, owned))
            expected.append({
                "tick_number": tick.number, "molecule_type": kind, "owned": owned, "cells": len(values),
                "value_sum": sum(values), "value_min": min(values), "value_max": max(values),
                "zero_cells": values.count(0), "marked_cells": None if run.era == "A" else marked,
            })  # fmt: skip
    assert Tables(run, next(folders), chunk_bytes).of(CellStatsIndexer) == expected


@given(runs, st.sampled_from([1, 500, 1 << 20]))
def test_every_cell_of_every_mutation_has_a_row(folders: Any, run: Run, chunk_bytes: int) -> None:
    expected: list[tuple[Any, ...]] = []
    for one in run.lives.values() if run.era in "FG" else ():
        for number, event in enumerate(one.mutations):
            changes = list(zip(event.cells, event.old, event.new, strict=True)) or [(None, None, None)]
            direction = [*event.dv, None, None, None][:3]
            for place, change in enumerate(changes):
                expected.append((one.id, number, place, event.plugin, event.kind, *change, *direction))
    rows = Tables(run, next(folders), chunk_bytes).of(MutationEventsIndexer)
    assert [tuple(row.values())[1:] for row in rows] == expected
    assert all(run.since(row["tick_number"], run.lives[row["organism_id"]].birth) for row in rows)


@given(old_runs)
def test_what_older_formats_do_not_record_is_null_and_not_guessed(folders: Any, run: Run) -> None:
    tables = Tables(run, next(folders), 500)
    assert tables.of(DeathsIndexer) == []
    exact = True if run.step == 1 else None if run.era == "D" else False
    births = tables.of(BirthsIndexer)
    seen = {one.id: tick.number for tick in reversed(run.ticks) for one in tick.organisms}
    assert {row["organism_id"]: row["tick_number"] for row in births} == seen
    assert {row["exact"] for row in births} <= {exact}
    for row, tick in zip(tables.of(TickStatsIndexer), run.ticks, strict=True):
        alive = run.alive(tick.number)
        like_e = run.era == "D" and not alive  # without organisms nothing tells the two apart
        deaths = (0, True) if like_e else (None, exact)
        assert (row["alive"], row["dead"], row["deaths"], row["exact"]) == (len(alive), 0, *deaths)
        bodied = sum(one.genome != 0 for one in alive)
        assert row["bodied"] == (bodied if (run.era == "D" and bodied) or not alive else None)
        assert row["entropy_sum"] == (None if run.era == "A" and alive else sum(one.entropy for one in alive))
        acting = sum(one.opcode is not None for one in alive)
        assert row["executed"] == (None if run.era == "A" and alive else acting)
        # A total of 0 is not written.
        assert (row["total_created"], row["total_genomes"]) == (tick.created or None, tick.genomes or None)
