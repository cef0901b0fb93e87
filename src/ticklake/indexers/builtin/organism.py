"""The organism indexer: `organism_data`, one row per organism and tick."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ticklake.indexers.batch import BatchIndexer
from ticklake.indexers.builtin.columns import components, tick_per_item
from ticklake.lake.table import Table
from ticklake.world import World

SCHEMA = pa.schema(
    [
        ("tick_number", pa.int64()),
        ("organism_id", pa.int32()),
        ("x", pa.int32()),
        ("y", pa.int32()),
        ("z", pa.int32()),
        ("energy", pa.int32()),
        ("age", pa.int64()),
        ("parent_id", pa.int32()),
        ("birth_tick", pa.int64()),
        ("program_id", pa.string()),
        ("is_dead", pa.bool_()),
    ]
)


class OrganismIndexer(BatchIndexer):
    """One row per organism and tick; x, y and z are its instruction pointer."""

    table = Table("organism_data", key=("tick_number", "organism_id"), schema=SCHEMA)
    reads = (
        "tick_number",
        "organisms.organism_id",
        "organisms.ip",
        "organisms.energy",
        "organisms.parent_id",
        "organisms.birth_tick",
        "organisms.program_id",
        "organisms.is_dead",
    )

    @staticmethod
    def rows(ticks: pa.RecordBatch, world: World | None) -> pa.RecordBatch:
        organisms = ticks.column("organisms").flatten()
        tick_number, birth_tick = tick_per_item(ticks, "organisms"), organisms.field("birth_tick")
        age = tick_number.to_numpy() - birth_tick.to_numpy()
        return pa.RecordBatch.from_arrays(
            [
                tick_number,
                organisms.field("organism_id"),
                *components(organisms.field("ip")),
                organisms.field("energy"),
                pa.array(age.astype(np.int64)),
                organisms.field("parent_id"),
                birth_tick,
                organisms.field("program_id"),
                organisms.field("is_dead"),
            ],
            schema=SCHEMA,
        )
