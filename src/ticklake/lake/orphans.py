"""Parquet files that no commit knows: what a flush left behind that died before it could commit."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable


def orphaned_files(table: Path, older_than: float) -> list[Path]:
    """Those of a table that were last written more than so many seconds ago. Nobody reads them."""
    known = {unquote(path) for path in _live(table)}
    limit = time.time() - older_than
    found = [file for file in table.glob("*.parquet") if file.name not in known and file.stat().st_mtime < limit]
    removed = set(_ever_added(table)) if found else set()  # by a commit: older versions of the table still have them
    return sorted(file for file in found if file.name not in removed)


def _live(table: Path) -> list[str]:
    adds = pa.table(DeltaTable(table).get_add_actions(flatten=True))
    return [str(path) for path in adds["path"].to_pylist()]


def _ever_added(table: Path) -> Iterator[str]:
    for commit in (table / "_delta_log").glob("*.json"):
        for line in commit.read_bytes().splitlines():
            action = json.loads(line).get("add")
            if action:
                yield unquote(action["path"])
