"""What a table asks of those who read it: the rows must be what its Parquet files hold, all of it and no more."""

from __future__ import annotations

from pathlib import Path

from deltalake import DeltaTable

from ticklake.lake.errors import UnknownTableFormat

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
