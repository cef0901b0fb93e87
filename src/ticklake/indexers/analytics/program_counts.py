"""`program_counts`: one row per tick and program that has living organisms."""

from __future__ import annotations

import pyarrow as pa

from ticklake.indexers.analytics.groups import grouped
from ticklake.indexers.analytics.population import Population
from ticklake.indexers.batch import BatchIndexer
from ticklake.lake.table import Table
from ticklake.world import World

SCHEMA = pa.schema(
    [
        ("tick_number", pa.int64()),
        ("program_id", pa.string()),
        ("alive", pa.int64()),
        ("energy_sum", pa.int64()),
    ]
)


class ProgramCountsIndexer(BatchIndexer):
    """The living organisms of each program, and their energy."""

    table = Table("program_counts", key=("tick_number", "program_id"), schema=SCHEMA)
    reads = ("tick_number", "organisms.is_dead", "organisms.program_id", "organisms.energy")

    @staticmethod
    def rows(ticks: pa.RecordBatch, world: World | None) -> pa.RecordBatch:
        population = Population(ticks, world)
        living = population.taken(population.alive)
        groups, programs = grouped(population.places[living.positions], living.column("program_id"))
        return pa.RecordBatch.from_arrays(
            [
                pa.array(population.tick_numbers[groups.places]),
                programs,
                pa.array(groups.count()),
                pa.array(groups.sum(living.numbers("energy"))),
            ],
            schema=SCHEMA,
        )
