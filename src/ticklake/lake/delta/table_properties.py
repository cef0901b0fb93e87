"""Checks the properties of a table: the features that readers must support, its key, and its run."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, Schema

from ticklake.lake.delta.commits import SOURCES, info_of, read_commit
from ticklake.lake.delta.files import is_counted_by
from ticklake.lake.delta.location import LOG, Location
from ticklake.lake.errors import TableOfAnotherRun, TableUnreadable, TableWithoutLog, UnknownTableFormat

KEY = "ticklake.key"
"""The table property that names the columns of its key."""
INDEXER = "ticklake.indexer"
"""The table property that names its indexer, as MODULE:CLASS."""
RUN = "ticklake.run"
"""The table property that names the run."""
SCHEMA = "ticklake.schema"
"""The table property with the version of its schema."""
ADDED = "ticklake.added"
"""The table property that names the columns that were added since the table was created."""
# The run of an old table without that property is found in its commits. Most commits add rows, so the newest suffice.
_COMMITS = 20
# Reader version 2 is column mapping: column names in files differ from those of the table.
_READER_VERSIONS = (1, 3)
_READER_FEATURES = {"timestampNtz"}


def check_readable(delta: DeltaTable, location: Location) -> None:
    """Raises `UnknownTableFormat` if the Parquet files alone do not give the rows of the table."""
    protocol = delta.protocol()
    if unknown := sorted(set(protocol.reader_features or ()) - _READER_FEATURES):
        raise UnknownTableFormat(table=location, reason=f"its readers must support {', '.join(unknown)}")
    if protocol.min_reader_version not in _READER_VERSIONS:
        raise UnknownTableFormat(table=location, reason=f"it has Delta reader version {protocol.min_reader_version}")
    if columns := delta.metadata().partition_columns:
        raise UnknownTableFormat(table=location, reason=f"it is partitioned by {', '.join(columns)}")


def named_key(delta: DeltaTable, location: Location) -> tuple[str, ...]:
    """Returns the key columns of a table, if it names any. Checks them, because any engine can set the property."""
    text = delta.metadata().configuration.get(KEY)
    if not text:
        return ()
    try:
        key = json.loads(text)
    except (ValueError, RecursionError):
        key = None
    if not isinstance(key, list) or not all(isinstance(name, str) for name in key):
        raise UnknownTableFormat(table=location, reason=f"its {KEY} is not a list of names: {text[:60]!r}")
    columns = [field.name for field in delta.schema().fields]
    if missing := [name for name in key if name not in columns]:
        raise UnknownTableFormat(table=location, reason=f"its {KEY} names {missing[0]!r}, which is not a column")
    if key and not is_counted_by(delta, key[0]):
        raise UnknownTableFormat(table=location, reason=f"its {KEY} begins with {key[0]!r}, which is not an integer")
    return tuple(key)


def growth(
    delta: DeltaTable, location: Location, schema: pa.Schema, properties: Mapping[str, str]
) -> dict[str, Any] | None:
    """Returns the action that appends the columns of a newer schema; None if the table has them.

    Raises `UnknownTableFormat` if the schema of the table is newer.
    """
    newest, text = int(properties.get(SCHEMA, "1")), delta.metadata().configuration.get(SCHEMA) or "1"
    if not (text.isascii() and text.isdecimal() and int(text) <= newest):
        reason = f"its schema has version {text[:20]!r}, but only versions up to {newest} are known here"
        raise UnknownTableFormat(table=location, reason=reason)
    return _grown(delta, schema, newest) if int(text) < newest else None


def added_columns(found: Mapping[str, str | None]) -> list[str]:
    """Returns the columns that a table has got since it was created. Its older rows have null there."""
    try:
        names = json.loads(found.get(ADDED) or "[]")
    except (ValueError, RecursionError):
        return []
    return [str(name) for name in names] if isinstance(names, list) else []


def _grown(delta: DeltaTable, schema: pa.Schema, version: int) -> dict[str, Any]:
    metadata, fields = delta.metadata(), json.loads(delta.schema().to_json())["fields"]
    new = pa.schema([field for field in schema if field.name not in {one["name"] for one in fields}])
    fields += json.loads(Schema.from_arrow(new).to_json())["fields"]
    found = metadata.configuration
    added = {ADDED: json.dumps([*added_columns(found), *new.names]), SCHEMA: str(version)}
    return {
        "metaData": {
            "id": str(metadata.id),
            "name": metadata.name,
            "description": metadata.description,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": fields}),
            "partitionColumns": [],
            "createdTime": metadata.created_time,
            "configuration": {**found, **added},
        }
    }


def opened_table(location: Location, version: int | None = None) -> DeltaTable:
    """Opens a table as delta-rs sees it; default: its newest version."""
    return DeltaTable(str(location), version=version)


def open_of_run(location: Location, run_id: str) -> DeltaTable:
    """Opens the table of a run. Raises `TableOfAnotherRun` if it belongs to another one."""
    delta = opened_table(location)
    check_run(delta, location, run_id)
    return delta


def check_run(delta: DeltaTable, location: Location, run_id: str) -> None:
    """Raises `TableOfAnotherRun` if the table belongs to another run."""
    found = delta.metadata().configuration.get(RUN) or _run_of_commits(location, int(delta.version()))
    require_run(location, found or run_id, run_id)


def require_run(location: Location, found: str, run_id: str) -> None:
    """Raises `TableOfAnotherRun` if `found` is not this run."""
    if found != run_id:
        reason = f"a table of run {found!r} in the folder of run {run_id!r}"
        raise TableOfAnotherRun(table=location, reason=reason)


def _run_of_commits(location: Location, newest: int) -> str:
    """Returns the run of the batch files in the newest commit that names any, or an empty text."""
    for version in range(newest, max(-1, newest - _COMMITS), -1):
        if run := _run_of(read_commit(location, version) or b""):
            return run
    return ""


def _run_of(commit: bytes) -> str:
    """Returns the run that a commit names, or an empty text. Any engine may have written the commit."""
    try:
        sources = json.loads(info_of(commit)[SOURCES])
        return str(sources[0]["file"]).partition("/")[0]
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""


def unreadable(location: Location, error: BaseException) -> TableUnreadable:
    """Returns the error for a table that cannot be opened."""
    if location.lacks_log():
        what = f"no commit in its {LOG}" if location.exists() else f"no {LOG}"
        return TableWithoutLog(table=location, reason=f"has Parquet files but {what}")
    return TableUnreadable(table=location, reason=one_line(error))


def one_line(error: BaseException) -> str:
    """Returns the first line of an error of delta-rs, without its stack frames and its full stop."""
    lines = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
