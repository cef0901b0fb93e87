"""The smallest indexer there is: no component, no table."""

from __future__ import annotations

from ticklake.indexers.batch import BatchIndexer
from ticklake.indexers.components import Components


class MinimalBatchIndexer(BatchIndexer):
    """Reads each tick on its own and counts it."""

    def components(self) -> Components:
        return Components()
