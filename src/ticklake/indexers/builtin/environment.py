"""The environment indexer: `environment_data`, one row per occupied cell and tick."""

from __future__ import annotations

import pyarrow as pa

from ticklake.indexers.batch import BatchIndexer
from ticklake.indexers.builtin.columns import axes, tick_per_item
from ticklake.lake.table import Table
from ticklake.world import World

SCHEMA = pa.schema(
    [
        ("tick_number", pa.int64()),
        ("cell_id", pa.int32()),
        ("x", pa.int32()),
        ("y", pa.int32()),
        ("z", pa.int32()),
        ("state", pa.int32()),
        ("molecule_type", pa.int32()),
        ("molecule_value", pa.int32()),
        ("owner_id", pa.int32()),
        ("type", pa.int32()),
        ("marker", pa.int32()),
    ]
)


_FIRST_OF_CELL = SCHEMA.names.index("state")


class EnvironmentIndexer(BatchIndexer):
    """One row per occupied cell and tick."""

    table = Table("environment_data", key=("tick_number", "cell_id"), schema=SCHEMA, version=2)
    reads = ("tick_number", "cells", "cells.state", "cells.type", "cells.marker")

    @staticmethod
    def rows(ticks: pa.RecordBatch, world: World | None) -> pa.RecordBatch:
        cells = ticks.column("cells").flatten()
        cell_id = cells.field("flat_index")
        return pa.RecordBatch.from_arrays(
            [
                tick_per_item(ticks, "cells"),
                cell_id,
                *axes(cell_id.to_numpy(), world),
                *(cells.field(name) for name in SCHEMA.names[_FIRST_OF_CELL:]),
            ],
            schema=SCHEMA,
        )
