"""The indexers of cells: one for each value of the option `cells`.

| cells | table | rows |
| --- | --- | --- |
| all | environment_data | every occupied cell of every tick |
| snapshots | environment_data | every occupied cell of the ticks that are recorded completely |
| changes | environment_changes | the same, and of the other ticks the cells that differ from the tick before |
| none | none | none |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from ticklake.indexers.batch import BatchIndexer
from ticklake.indexers.builtin.columns import axes, tick_per_item
from ticklake.lake.cells import CHANGES, DATA, NO_CELL, REMOVED, SINCE
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
_OF_CHANGES = SCHEMA.append(pa.field(SINCE, pa.int64())).append(pa.field(REMOVED, pa.bool_()))
_KEY = ("tick_number", "cell_id")
_FIRST_OF_CELL = SCHEMA.names.index("state")


class EnvironmentIndexer(BatchIndexer):
    """One row per occupied cell and tick."""

    table = Table(DATA, key=_KEY, schema=SCHEMA, version=2)
    reads = ("tick_number", "cells", "cells.state", "cells.type", "cells.marker")

    @staticmethod
    def rows(ticks: pa.RecordBatch, world: World | None) -> pa.RecordBatch:
        return _rows(ticks, "cells", world)


class SnapshotIndexer(BatchIndexer):
    """One row per occupied cell of each tick that is recorded completely. The other ticks have no rows."""

    table = replace(EnvironmentIndexer.table, cells="snapshots")
    reads = ("tick_number", "snapshots")

    @staticmethod
    def rows(ticks: pa.RecordBatch, world: World | None) -> pa.RecordBatch:
        return _rows(ticks, "snapshots", world)


class ChangesIndexer(BatchIndexer):
    """One row per cell that differs from the tick `since`; without `since`, one per occupied cell.

    A tick that would have no row has one of no cell, because each tick must say since when.
    """

    table = Table(CHANGES, key=_KEY, schema=_OF_CHANGES)
    reads = ("tick_number", "changes", "since")

    @staticmethod
    def rows(ticks: pa.RecordBatch, world: World | None) -> pa.RecordBatch:
        cells, counts = _rows(ticks, "changes", world), ticks.column("changes").value_lengths().to_numpy()
        since = ticks.column("since")
        of_cells = since.take(pa.array(np.repeat(np.arange(len(counts)), counts)))
        emptied = (cells.column("state").to_numpy() == 0) & (cells.column("owner_id").to_numpy() == 0)
        removed = emptied & of_cells.is_valid().to_numpy(zero_copy_only=False)
        changed = pa.RecordBatch.from_arrays([*cells.columns, of_cells, pa.array(removed)], schema=_OF_CHANGES)
        bare = pa.array(counts == 0)
        missing = len(since.filter(bare))
        known = {
            "tick_number": ticks.column("tick_number").filter(bare),
            "cell_id": pa.array(np.full(missing, NO_CELL, np.int32)),
            SINCE: since.filter(bare),
            REMOVED: pa.array(np.ones(missing, np.bool_)),
        }
        columns = [known.get(field.name, pa.nulls(missing, field.type)) for field in _OF_CHANGES]
        return pa.concat_batches([changed, pa.RecordBatch.from_arrays(columns, schema=_OF_CHANGES)])


class NoCellsIndexer(BatchIndexer):
    """Reads ticks and writes no cells."""


OF_CELLS: Mapping[str, type[BatchIndexer]] = {
    "all": EnvironmentIndexer,
    "snapshots": SnapshotIndexer,
    "changes": ChangesIndexer,
    "none": NoCellsIndexer,
}
"""The indexer for each value of the option `cells`."""


def _rows(ticks: pa.RecordBatch, column: str, world: World | None) -> pa.RecordBatch:
    cells = ticks.column(column).flatten()
    cell_id = cells.field("flat_index")
    return pa.RecordBatch.from_arrays(
        [
            tick_per_item(ticks, column),
            cell_id,
            *axes(cell_id.to_numpy(), world),
            *(cells.field(name) for name in SCHEMA.names[_FIRST_OF_CELL:]),
        ],
        schema=SCHEMA,
    )
