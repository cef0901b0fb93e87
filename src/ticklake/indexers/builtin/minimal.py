"""The smallest indexer: no components, no table."""

from __future__ import annotations

from ticklake.indexers.batch import BatchIndexer
from ticklake.indexers.components import Components


class MinimalBatchIndexer(BatchIndexer):
    """Reads each tick separately and counts it."""

    def components(self) -> Components:
        return Components()
