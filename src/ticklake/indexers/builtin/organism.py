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
        ("death_tick", pa.int64()),
        ("genome_hash", pa.int64()),
        ("entropy", pa.int32()),
        ("marker", pa.int32()),
        ("initial_x", pa.int32()),
        ("initial_y", pa.int32()),
        ("initial_z", pa.int32()),
        ("opcode", pa.int32()),
        ("instruction_failed", pa.bool_()),
        ("failure_reason", pa.string()),
        ("energy_cost", pa.int32()),
        ("generation", pa.int32()),
        ("parent_genome_hash", pa.int64()),
    ]
)
_BEFORE_POSITION = ("death_tick", "genome_hash", "entropy_register", "molecule_marker_register")
_AFTER_POSITION = (
    *("instruction_opcode_id", "instruction_failed", "failure_reason", "instruction_energy_cost"),
    *("generation", "parent_genome_hash"),
)


class OrganismIndexer(BatchIndexer):
    """One row per organism and tick; x, y and z are its instruction pointer."""

    table = Table("organism_data", key=("tick_number", "organism_id"), schema=SCHEMA, version=2)
    reads = (
        "tick_number",
        "organisms.organism_id",
        "organisms.ip",
        "organisms.energy",
        "organisms.parent_id",
        "organisms.birth_tick",
        "organisms.program_id",
        "organisms.is_dead",
        "organisms.initial_position",
        *(f"organisms.{name}" for name in (*_BEFORE_POSITION, *_AFTER_POSITION)),
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
                *map(organisms.field, _BEFORE_POSITION),
                *components(organisms.field("initial_position")),
                *map(organisms.field, _AFTER_POSITION),
            ],
            schema=SCHEMA,
        )
