"""Writes, lists and reads batch files and metadata of runs."""

from __future__ import annotations

from ticklake.storage.codec import FORMAT, encode_ticks, read_ticks
from ticklake.storage.columns import (
    NO_PARENT,
    CellColumns,
    EncodedTick,
    OrganismColumns,
    TickColumns,
)
from ticklake.storage.eras.batches import tick_schema
from ticklake.storage.eras.formats import format_at_a_glance, format_of, is_chunked
from ticklake.storage.eras.recordings import first_chunk_length
from ticklake.storage.eras.stretches import grid_of, stretches_of, stretches_of_run
from ticklake.storage.files import BatchFile, Storage
from ticklake.storage.local import create_file, replace_file
from ticklake.storage.names import (
    MAX_TICK,
    check_key,
    check_run_id,
    is_safe,
    new_run_id,
    parse_batch_name,
    run_started_at,
)
from ticklake.storage.watch import Watch

__all__ = [
    "FORMAT",
    "MAX_TICK",
    "NO_PARENT",
    "BatchFile",
    "CellColumns",
    "EncodedTick",
    "OrganismColumns",
    "Storage",
    "TickColumns",
    "Watch",
    "check_key",
    "check_run_id",
    "create_file",
    "encode_ticks",
    "first_chunk_length",
    "format_at_a_glance",
    "format_of",
    "grid_of",
    "is_chunked",
    "is_safe",
    "new_run_id",
    "parse_batch_name",
    "read_ticks",
    "replace_file",
    "run_started_at",
    "stretches_of",
    "stretches_of_run",
    "tick_schema",
]
