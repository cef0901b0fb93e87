"""`deaths`: one row per dead organism, in the first recording after its death."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from ticklake.indexers.analytics.population import LIFE, Population, Subset
from ticklake.indexers.batch import BatchIndexer
from ticklake.indexers.builtin import components
from ticklake.lake.table import Table
from ticklake.world import World

SCHEMA = pa.schema(
    [
        ("tick_number", pa.int64()),
        ("organism_id", pa.int32()),
        ("death_tick", pa.int64()),
        ("birth_tick", pa.int64()),
        ("lifespan", pa.int64()),
        ("energy", pa.int32()),
        ("entropy", pa.int32()),
        ("cause", pa.string()),
        ("failed", pa.bool_()),
        ("failure_reason", pa.string()),
        ("x", pa.int32()),
        ("y", pa.int32()),
        ("z", pa.int32()),
    ]
)


class DeathsIndexer(BatchIndexer):
    """One row per dead organism; x, y and z are its instruction pointer."""

    table = Table("deaths", key=("tick_number", "organism_id"), schema=SCHEMA)
    reads = (
        *LIFE,
        *(f"organisms.{name}" for name in ("organism_id", "energy", "entropy_register", "ip")),
        *("organisms.instruction_failed", "organisms.failure_reason"),
    )

    @staticmethod
    def rows(ticks: pa.RecordBatch, world: World | None) -> pa.RecordBatch:
        population = Population(ticks, world)
        dead = population.taken(population.died)
        death_tick, birth_tick = dead.column("death_tick"), dead.column("birth_tick")
        return pa.RecordBatch.from_arrays(
            [
                pa.array(dead.ticks),
                dead.column("organism_id"),
                death_tick,
                birth_tick,
                pc.subtract(death_tick, birth_tick),
                dead.column("energy"),
                dead.column("entropy_register"),
                _causes(dead, world),
                dead.column("instruction_failed"),
                dead.column("failure_reason"),
                *components(dead.column("ip")),
            ],
            schema=SCHEMA,
        )


def _causes(dead: Subset, world: World | None) -> pa.Array:
    """Returns why each organism died, from its state at death. No format records the cause.

    Null: it had energy left, and its entropy or the limit of this run is not known.
    """
    limit = pa.scalar(world.max_entropy if world else None, pa.int32())
    by_entropy = pc.greater_equal(dead.column("entropy_register"), limit)
    other = pc.if_else(by_entropy, "entropy", "other")
    return pc.if_else(pc.less_equal(dead.column("energy"), 0), "energy", other)
