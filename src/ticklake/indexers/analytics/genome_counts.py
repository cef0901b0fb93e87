"""`genome_counts`: one row per tick and genome."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ticklake.indexers.analytics.groups import grouped
from ticklake.indexers.analytics.population import LIFE, Population
from ticklake.indexers.batch import BatchIndexer
from ticklake.lake.table import Table
from ticklake.world import World

SCHEMA = pa.schema(
    [
        ("tick_number", pa.int64()),
        ("genome_hash", pa.int64()),
        ("alive", pa.int64()),
        ("newborn", pa.int64()),
        ("died", pa.int64()),
        ("energy_sum", pa.int64()),
        ("oldest_birth_tick", pa.int64()),
    ]
)


class GenomeCountsIndexer(BatchIndexer):
    """Every genome of a tick, also one whose last organism has just died. 0 is an organism without a genome."""

    table = Table("genome_counts", key=("tick_number", "genome_hash"), schema=SCHEMA)
    reads = (*LIFE, "organisms.genome_hash", "organisms.energy")

    @staticmethod
    def rows(ticks: pa.RecordBatch, world: World | None) -> pa.RecordBatch:
        population = Population(ticks, world)
        some = population.taken(population.known("genome_hash"))
        groups, genomes = grouped(population.places[some.positions], some.column("genome_hash"))
        alive = population.alive[some.positions]
        births = np.where(alive, some.numbers("birth_tick"), np.iinfo(np.int64).max)
        living = groups.count(alive)
        return pa.RecordBatch.from_arrays(
            [
                pa.array(population.tick_numbers[groups.places]),
                genomes,
                pa.array(living),
                pa.array(groups.count(population.newborn[some.positions])),
                pa.array(groups.count(population.died[some.positions])),
                pa.array(groups.sum(np.where(alive, some.numbers("energy"), 0))),
                pa.array(groups.least(births), mask=living == 0),
            ],
            schema=SCHEMA,
        )
