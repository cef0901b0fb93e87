"""An indexer of your own: how much energy there is in each tick.

cd examples && ticklake index RUN --storage DIR --lake DIR --table own_indexer:EnergyIndexer
"""

from __future__ import annotations

import pyarrow as pa

from ticklake import BatchIndexer, Table, World


class EnergyIndexer(BatchIndexer):
    """One row a tick."""

    table = Table(
        "energy_data",
        key=("tick_number",),
        schema=pa.schema([("tick_number", pa.int64()), ("energy", pa.int64())]),
    )
    reads = ("tick_number", "organisms.energy")

    @staticmethod
    def rows(ticks: pa.RecordBatch, world: World | None) -> pa.RecordBatch:
        energy = [sum(one["energy"] for one in organisms) for organisms in ticks.column("organisms").to_pylist()]
        columns = [ticks.column("tick_number"), pa.array(energy, pa.int64())]
        return pa.RecordBatch.from_arrays(columns, names=["tick_number", "energy"])
