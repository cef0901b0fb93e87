"""Batch files: their names, their place, their bytes."""

from ticklake.storage.codec import encode_ticks
from ticklake.storage.columns import NO_PARENT, CellColumns, EncodedTick, OrganismColumns, TickColumns

__all__ = ["NO_PARENT", "CellColumns", "EncodedTick", "OrganismColumns", "TickColumns", "encode_ticks"]
