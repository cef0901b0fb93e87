"""`births`: one row per organism, in the first recording after its birth."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ticklake.indexers.analytics.population import LIFE, Bools, Ints, Population, Subset
from ticklake.indexers.batch import BatchIndexer
from ticklake.indexers.builtin import components
from ticklake.lake.table import Table
from ticklake.world import World

SCHEMA = pa.schema(
    [
        ("tick_number", pa.int64()),
        ("organism_id", pa.int32()),
        ("birth_tick", pa.int64()),
        ("parent_id", pa.int32()),
        ("parent_birth_tick", pa.int64()),
        ("genome_hash", pa.int64()),
        ("parent_genome_hash", pa.int64()),
        ("program_id", pa.string()),
        ("generation", pa.int32()),
        ("x0", pa.int32()),
        ("y0", pa.int32()),
        ("z0", pa.int32()),
        ("energy", pa.int32()),
        ("mutations", pa.int32()),
        ("exact", pa.bool_()),
    ]
)
_MUTATIONS_ALWAYS = "G"


class BirthsIndexer(BatchIndexer):
    """One row per organism. Its parent is looked up in the same recording, where it is alive or has just died."""

    table = Table("births", key=("tick_number", "organism_id"), schema=SCHEMA)
    reads = (
        *LIFE,
        *(f"organisms.{name}" for name in ("organism_id", "parent_id", "genome_hash", "parent_genome_hash")),
        *(f"organisms.{name}" for name in ("program_id", "generation", "initial_position", "energy")),
        "organisms.birth_mutations",
    )

    @staticmethod
    def rows(ticks: pa.RecordBatch, world: World | None) -> pa.RecordBatch:
        population = Population(ticks, world)
        born = population.taken(population.newborn)
        parents, known = _parents(population, born)
        birth_ticks = population.numbers("birth_tick")[parents]
        # Since format F the genome of the parent is recorded with the child.
        genomes = pc.coalesce(born.column("parent_genome_hash"), _genomes(population, parents, known))
        exact = pa.scalar(population.births_are_complete, pa.bool_())
        return pa.RecordBatch.from_arrays(
            [
                pa.array(born.ticks),
                born.column("organism_id"),
                born.column("birth_tick"),
                born.column("parent_id"),
                pa.array(birth_ticks, mask=~known),
                born.column("genome_hash"),
                genomes,
                born.column("program_id"),
                born.column("generation"),
                *components(born.column("initial_position")),
                born.column("energy"),
                _mutations(born),
                pa.repeat(exact, len(born.positions)),
            ],
            schema=SCHEMA,
        )


def _parents(population: Population, born: Subset) -> tuple[Ints, Bools]:
    """Returns the position of each newborn's parent, and whether it is there."""
    ids = (population.places << 32) + population.numbers("organism_id")
    order = None if (ids[1:] >= ids[:-1]).all() else np.argsort(ids)
    wanted = (population.places[born.positions] << 32) + born.numbers("parent_id")
    found = np.searchsorted(ids, wanted, sorter=order)
    found[found == len(ids)] = 0
    positions = found if order is None else order[found]
    there: Bools = (ids[positions] == wanted) & born.column("parent_id").is_valid().to_numpy(zero_copy_only=False)
    return positions, there


def _genomes(population: Population, parents: Ints, known: Bools) -> pa.Array:
    return population.column("genome_hash").take(pa.array(parents, mask=~known))


def _mutations(born: Subset) -> pa.Array:
    """Returns how many mutations each birth has; null if the format, or some of its builds, does not record them."""
    counts = born.column("birth_mutations").value_lengths()
    if born.population.format == _MUTATIONS_ALWAYS:
        return counts
    return pc.if_else(pc.equal(counts, 0), pa.scalar(None, pa.int32()), counts)
