"""The indexers that come with TickLake."""

from __future__ import annotations

from ticklake.indexers.builtin.columns import components
from ticklake.indexers.builtin.dummy import DummyIndexer
from ticklake.indexers.builtin.environment import OF_CELLS, EnvironmentIndexer
from ticklake.indexers.builtin.metadata import MetadataIndexer
from ticklake.indexers.builtin.minimal import MinimalBatchIndexer
from ticklake.indexers.builtin.organism import OrganismIndexer
from ticklake.indexers.builtin.simple import SimpleBatchIndexer

__all__ = [
    "OF_CELLS",
    "DummyIndexer",
    "EnvironmentIndexer",
    "MetadataIndexer",
    "MinimalBatchIndexer",
    "OrganismIndexer",
    "SimpleBatchIndexer",
    "components",
]
