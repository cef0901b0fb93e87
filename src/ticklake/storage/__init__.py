"""Batch files: their names, their place, their bytes."""

from ticklake.storage.codec import encode_ticks, read_ticks
from ticklake.storage.columns import NO_PARENT, CellColumns, EncodedTick, OrganismColumns, TickColumns
from ticklake.storage.files import BatchFile, Page, Storage

__all__ = [
    "NO_PARENT",
    "BatchFile",
    "CellColumns",
    "EncodedTick",
    "OrganismColumns",
    "Page",
    "Storage",
    "TickColumns",
    "encode_ticks",
    "read_ticks",
]
