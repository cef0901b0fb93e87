"""`cell_stats`: one row per tick, type of molecule, and whether the cells are owned."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ticklake.indexers.analytics.groups import Groups
from ticklake.indexers.batch import BatchIndexer
from ticklake.lake.table import Table
from ticklake.world import World

SCHEMA = pa.schema(
    [
        ("tick_number", pa.int64()),
        ("molecule_type", pa.int32()),
        ("owned", pa.bool_()),
        ("cells", pa.int64()),
        ("value_sum", pa.int64()),
        ("value_min", pa.int32()),
        ("value_max", pa.int32()),
        ("zero_cells", pa.int64()),
        ("marked_cells", pa.int64()),
    ]
)


class CellStatsIndexer(BatchIndexer):
    """The occupied cells of a tick by type and ownership. `molecule_type` is the plain number of the type."""

    table = Table("cell_stats", key=("tick_number", "molecule_type", "owned"), schema=SCHEMA)
    reads = ("tick_number", "cells.type", "cells.molecule_value", "cells.owner_id", "cells.marker")

    @staticmethod
    def rows(ticks: pa.RecordBatch, world: World | None) -> pa.RecordBatch:
        lists = ticks.column("cells")
        cells = lists.flatten()
        types, values = cells.field("type").to_numpy(), cells.field("molecule_value").to_numpy()
        owned = cells.field("owner_id").to_numpy() != 0
        markers = cells.field("marker")
        places = np.repeat(np.arange(len(ticks)), np.diff(lists.offsets.to_numpy()))
        lowest, highest = (int(types.min()), int(types.max())) if len(types) else (0, 0)
        codes = (types - lowest) * 2 + owned  # a type has at most 16 bits
        groups = Groups(places, codes, 2 * (highest - lowest + 1))
        marked = groups.count(pc.fill_null(markers, 0).to_numpy() != 0)
        unknown = np.full(len(groups), bool(len(markers)) and markers.null_count == len(markers))
        return pa.RecordBatch.from_arrays(
            [
                pa.array(ticks.column("tick_number").to_numpy()[groups.places]),
                pa.array((groups.codes // 2 + lowest).astype(np.int32)),
                pa.array(groups.codes % 2 == 1),
                pa.array(groups.count()),
                pa.array(groups.sum(values)),
                pa.array(groups.least(values)),
                pa.array(groups.greatest(values)),
                pa.array(groups.count(values == 0)),
                pa.array(marked, mask=unknown),
            ],
            schema=SCHEMA,
        )
