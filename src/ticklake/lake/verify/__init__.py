"""Checks a table for damage, and compares it with its batch files."""

from __future__ import annotations

from ticklake.lake.verify.coverage import TICK, covered, key_of, properties_of, row_counts, rows_of, table_id
from ticklake.lake.verify.damage import damaged_files
from ticklake.lake.verify.deep import Deep, compare_deeply
from ticklake.lake.verify.ownership import check_owner

__all__ = [
    "TICK",
    "Deep",
    "check_owner",
    "compare_deeply",
    "covered",
    "damaged_files",
    "key_of",
    "properties_of",
    "row_counts",
    "rows_of",
    "table_id",
]
