"""The dummy indexer: counts cells and organisms and writes nothing. Use it to try out a pipeline."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from ticklake.indexers.batch import BatchIndexer


class DummyIndexer(BatchIndexer):
    """Counts batches, ticks, cells and organisms."""

    reads = ("tick_number", "cells.flat_index", "organisms.organism_id")

    @staticmethod
    def observe(ticks: pa.RecordBatch) -> Mapping[str, int]:
        return {
            "cells_observed": len(ticks.column("cells").flatten()),
            "organisms_observed": len(ticks.column("organisms").flatten()),
        }
