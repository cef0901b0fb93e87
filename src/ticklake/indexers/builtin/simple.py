"""An example indexer: it reads the metadata but does not buffer, so each tick is a separate flush."""

from __future__ import annotations

import pyarrow as pa

from ticklake.indexers.batch import BatchIndexer
from ticklake.indexers.components import Components, MetadataReading
from ticklake.lake.table import Table
from ticklake.world import World

SCHEMA = pa.schema([("tick_number", pa.int64()), ("value", pa.int32())])


class SimpleBatchIndexer(BatchIndexer):
    """One row per tick: the number of occupied cells."""

    table = Table("simple_data", key=("tick_number",), schema=SCHEMA)
    reads = ("tick_number", "cells.flat_index")

    def components(self) -> Components:
        return Components(metadata=MetadataReading(self.options.poll_interval_ms, self.options.max_poll_duration_ms))

    @staticmethod
    def rows(ticks: pa.RecordBatch, world: World | None) -> pa.RecordBatch:
        occupied = ticks.column("cells").value_lengths().cast(pa.int32())
        return pa.RecordBatch.from_arrays([ticks.column("tick_number"), occupied], schema=SCHEMA)
