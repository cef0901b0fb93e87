"""Upkeep of tables: compaction merges files, vacuum removes files that are no longer needed."""

from __future__ import annotations

from ticklake.lake.upkeep.compaction import Compaction, Policy
from ticklake.lake.upkeep.maintenance import Failed, Optimized, open_table, optimize_tables, vacuum_tables
from ticklake.lake.upkeep.vacuum import Garbage, Vacuum

__all__ = [
    "Compaction",
    "Failed",
    "Garbage",
    "Optimized",
    "Policy",
    "Vacuum",
    "open_table",
    "optimize_tables",
    "vacuum_tables",
]
