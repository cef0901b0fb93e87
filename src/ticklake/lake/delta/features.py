"""What a table asks of those who read it: the rows must be what its Parquet files hold, all of it and no more."""

from __future__ import annotations

import json
from pathlib import Path

from deltalake import DeltaTable

from ticklake.lake.delta.files import is_counted_by
from ticklake.lake.errors import UnknownTableFormat

KEY = "ticklake.key"
"""The table property that names the columns of its key."""
# Reader version 2 is column mapping: files have other names for the columns than the table.
_READER_VERSIONS = (1, 3)
_READER_FEATURES = {"timestampNtz"}


def check_readable(delta: DeltaTable, directory: Path) -> None:
    """Raises `UnknownTableFormat` if rows are deleted elsewhere, or columns are, or have other names there."""
    protocol = delta.protocol()
    if unknown := sorted(set(protocol.reader_features or ()) - _READER_FEATURES):
        raise UnknownTableFormat(table=directory, reason=f"its readers must know {', '.join(unknown)}")
    if protocol.min_reader_version not in _READER_VERSIONS:
        raise UnknownTableFormat(table=directory, reason=f"it has Delta reader version {protocol.min_reader_version}")
    if columns := delta.metadata().partition_columns:
        raise UnknownTableFormat(table=directory, reason=f"it is partitioned by {', '.join(columns)}")


def named_key(delta: DeltaTable, directory: Path) -> tuple[str, ...]:
    """The columns that a table says are its key; none if it names none. Anybody may have set that property."""
    text = delta.metadata().configuration.get(KEY)
    if not text:
        return ()
    try:
        key = json.loads(text)
    except (ValueError, RecursionError):
        key = None
    if not isinstance(key, list) or not all(isinstance(name, str) for name in key):
        raise UnknownTableFormat(table=directory, reason=f"its {KEY} is no list of names: {text[:60]!r}")
    columns = [field.name for field in delta.schema().fields]
    if missing := [name for name in key if name not in columns]:
        raise UnknownTableFormat(table=directory, reason=f"its {KEY} names {missing[0]!r}, which is no column of it")
    if key and not is_counted_by(delta, key[0]):
        raise UnknownTableFormat(table=directory, reason=f"its {KEY} begins with {key[0]!r}, which has no integers")
    return tuple(key)
