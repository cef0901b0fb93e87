"""`instruction_counts`: one row per tick and opcode that a living organism executed last."""

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
        ("opcode", pa.int32()),
        ("executed", pa.int64()),
        ("failed", pa.int64()),
    ]
)


class InstructionCountsIndexer(BatchIndexer):
    """The last instructions of the living. An organism without an opcode executed nothing."""

    table = Table("instruction_counts", key=("tick_number", "opcode"), schema=SCHEMA)
    reads = (
        *("tick_number", "organisms.is_dead"),
        *("organisms.instruction_opcode_id", "organisms.instruction_failed"),
    )

    @staticmethod
    def rows(ticks: pa.RecordBatch, world: World | None) -> pa.RecordBatch:
        population = Population(ticks, world)
        acting = population.taken(population.alive & population.known("instruction_opcode_id"))
        groups, opcodes = grouped(population.places[acting.positions], acting.column("instruction_opcode_id"))
        failed = population.flags("instruction_failed")[acting.positions]
        return pa.RecordBatch.from_arrays(
            [
                pa.array(population.tick_numbers[groups.places]),
                opcodes,
                pa.array(groups.count()),
                pa.array(groups.count(failed)),
            ],
            schema=SCHEMA,
        )
