"""The `metadata` table of a run: keys and JSON values, written in one commit.

It is a copy of the run's `metadata.pb`. Every reader checks its checksum. Every writer replaces a copy that is damaged,
missing, or differs from `metadata.pb`.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import pyarrow as pa
from google.protobuf.json_format import MessageToDict

from ticklake import faults
from ticklake.contracts import EnvironmentConfig, SimulationMetadata
from ticklake.errors import TickLakeError
from ticklake.lake.delta import (
    RUN,
    CommitConflict,
    DeltaError,
    DeltaLog,
    Location,
    ParquetFile,
    ParquetFileWriter,
    State,
    TableFile,
    TableFolder,
    TableNotFoundError,
    check_readable,
    check_run,
    checksum,
    decode_commit,
    files_of,
    log_states,
    name_of,
    one_line,
    opened,
    opened_table,
    read_commit,
    require_run,
    set_log_aside,
)
from ticklake.lake.errors import DamagedCommit, LakeUnreadable, LakeUnwritable, MetadataUnreadable, TableUnreadable

SCHEMA = pa.schema([pa.field("key", pa.string()), pa.field("value", pa.string())])
TABLE = "metadata"
_REPLACED = "ticklake.replaced"
"""The commit metadata that says why a commit replaces the metadata."""

Entries = dict[str, Any]


class _Layout(NamedTuple):
    """Schema and key of the Parquet file."""

    schema: pa.Schema
    key: tuple[str, ...]


class Written(StrEnum):
    """What a write did to the table."""

    NEW = "new"
    CHANGED = "changed"
    REPAIRED = "repaired"


def write_metadata(location: Location, metadata: SimulationMetadata) -> Written | None:
    """Writes the metadata of a run to its table in one commit. Returns None if the table already has it.

    If the log of the table is damaged, it is set aside, and the table is created again.
    """
    location.make()
    damage = ""
    while True:
        with TableFolder.open_or_create(location) as folder:
            states = log_states(folder)
            try:
                written = _write(location, metadata)
            except (DamagedCommit, LakeUnreadable) as error:
                if damage or not _is_damage(error):
                    raise
                damage = _set_aside(folder, states, str(error.reason))
            else:
                return Written.REPAIRED if damage else written


def _write(location: Location, metadata: SimulationMetadata) -> Written | None:
    run_id = metadata.simulation_run_id
    log = DeltaLog(location, TABLE, SCHEMA, properties={RUN: run_id})
    wanted = _entries(metadata)
    while True:
        found, flaw = _found(log, run_id)
        if found == wanted:
            # Its writer may have died before the commit was on disk.
            log.refresh()
            log.sync()
            return None
        file = _write_file(location, wanted)
        reason = flaw or difference(found, wanted)
        try:
            log.overwrite([file], {_REPLACED: reason} if reason else {})
        except CommitConflict:
            # Another indexer was faster and usually wrote the same, or the table was created again.
            log.discard([file])
            log.refresh()
        else:
            return Written.REPAIRED if flaw else Written.CHANGED if found else Written.NEW


def _is_damage(error: TickLakeError) -> bool:
    """Returns False if the table may be whole, but could not be read: delta-rs did not open it for another reason."""
    return isinstance(error, DamagedCommit) or isinstance(error.__cause__, DeltaError)


def _set_aside(folder: TableFolder, states: dict[str, State | None], reason: str) -> str:
    """Sets the log aside and returns the reason; an empty text if the log has changed meanwhile."""
    try:
        again = "The table is created again from the run's metadata.pb."
        is_set_aside = set_log_aside(folder, states, f"{reason}. {again}")
    except OSError as error:
        raise LakeUnwritable(directory=str(folder.location), reason=error) from error
    return reason if is_set_aside else ""


def read_metadata(location: Location, run_id: str) -> SimulationMetadata | None:
    """Returns the part of the run's metadata that indexers need, or None if the table does not exist yet.

    Raises `TableOfAnotherRun` if it belongs to another run, and `MetadataUnreadable` if it is damaged.
    """
    values = _read(location, run_id)
    return _metadata(location, values) if values else None


def disagreement(location: Location, metadata: SimulationMetadata) -> str:
    """Returns how the table differs from the run's metadata. Empty if it does not, or does not exist."""
    run_id = metadata.simulation_run_id
    again = f"`ticklake index {run_id}` writes it again"
    try:
        found = _read(location, run_id)
    except LakeUnreadable as error:
        return f"{location} cannot be read: {error.reason}. Make it readable, or move it away; then {again}"
    except TableUnreadable as error:
        return str(error)
    if not found:
        return f"{location} has no rows; {again}" if location.exists() else ""
    changed = difference(found, _entries(metadata))
    return f"{location} differs from the run's metadata.pb: {changed}; {again}" if changed else ""


def difference(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """Describes what differs in words. Returns an empty text if nothing was found yet."""
    return "; ".join(_changes(found, wanted)) if found else ""


def _changes(found: Mapping[str, Any], wanted: Mapping[str, Any], within: str = "") -> list[str]:
    changes: list[str] = []
    for name in sorted({*found, *wanted}):
        old, new = found.get(name), wanted.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            changes += _changes(old, new, f"{name}.")
        elif old != new:
            changes.append(f"{within}{name} is {_short(old)} instead of {_short(new)}")
    return changes


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


def _found(log: DeltaLog, run_id: str) -> tuple[Entries, str]:
    """Returns the entries of a table, or what is wrong with it. Raises if it belongs to another run."""
    try:
        return _stored(log.location, run_id), ""
    except MetadataUnreadable as error:
        return {}, str(error.reason)


def _read(location: Location, run_id: str) -> Entries:
    """Returns the entries of the table; none if it does not exist yet. Raises `MetadataUnreadable` for any damage."""
    try:
        return _stored(location, run_id)
    except DamagedCommit as error:
        raise MetadataUnreadable(table=location, reason=f"{error.file}: {error.reason}", run_id=run_id) from error


def _stored(location: Location, run_id: str) -> Entries:
    """Returns the entries of the table; none if it does not exist or was created a moment ago.

    Raises `DamagedCommit` if its log is damaged, and `MetadataUnreadable` if its rows are.
    """
    try:
        delta = opened_table(location)
        check_readable(delta, location)
        check_run(delta, location, run_id)
        files = files_of(delta, location)
        sums = _checksums(location, int(delta.version()))
    except (TableNotFoundError, FileNotFoundError):
        return {}
    except DeltaError as error:
        raise DamagedCommit(file=location.log, reason=one_line(error)) from error
    except OSError as error:
        raise LakeUnreadable(table=str(location), reason=one_line(error)) from error
    values: Entries = {}
    for file in files:
        values |= _read_file(file, sums.get(file.name, ""), run_id)
    if values:
        require_run(location, _run_of(location, values, run_id), run_id)
    elif int(delta.version()) > 0 and location.exists():  # version 0 creates it without rows
        raise MetadataUnreadable(table=location, reason="it has no rows", run_id=run_id)
    return values


def _checksums(location: Location, version: int) -> dict[str, str]:
    """Returns the checksums of all files, from the commits. The table has few commits."""
    found: dict[str, str] = {}
    for number in range(version + 1):
        try:
            if data := read_commit(location, number):
                found |= decode_commit(data, "").checksums
        except ValueError as error:
            raise DamagedCommit(file=str(location.log_file(name_of(number))), reason=error) from error
    return found


def _read_file(file: TableFile, expected: str, run_id: str) -> Entries:
    location = file.location
    try:
        if expected and checksum(file) != expected:
            raise ValueError(f"the checksum of {file.name} is wrong")
        with opened(file) as stored:
            rows = stored.read(columns=SCHEMA.names).to_pylist()
        return {row["key"]: json.loads(row["value"]) for row in rows}
    except FileNotFoundError as error:
        if not location.exists():
            return {}
        raise MetadataUnreadable(table=location, reason=f"its file {file.name} is gone", run_id=run_id) from error
    except (pa.ArrowException, ValueError, LookupError, TypeError, RecursionError) as error:
        raise MetadataUnreadable(table=location, reason=one_line(error), run_id=run_id) from error
    except OSError as error:
        if error.errno is None:  # Arrow raises these for damaged files
            raise MetadataUnreadable(table=location, reason=one_line(error), run_id=run_id) from error
        raise LakeUnreadable(table=str(location), reason=one_line(error)) from error


def _run_of(location: Location, values: Mapping[str, Any], run_id: str) -> str:
    try:
        return str(values["simulation_info"]["runId"])
    except (LookupError, TypeError) as error:
        raise MetadataUnreadable(table=location, reason=f"it lacks {error}", run_id=run_id) from error


def _write_file(location: Location, entries: Entries) -> ParquetFile:
    values = [json.dumps(value, sort_keys=True) for value in entries.values()]
    writer = ParquetFileWriter(location, f"{uuid.uuid4().hex}.parquet", _Layout(SCHEMA, ("key",)))
    try:
        with faults.around("lake.metadata.write"):
            writer.append(pa.RecordBatch.from_arrays([pa.array(list(entries)), pa.array(values)], schema=SCHEMA))
            file = writer.close()
    except OSError as error:
        raise LakeUnwritable(directory=str(location), reason=error) from error
    assert file is not None  # noqa: S101  it has rows
    return file


def _entries(metadata: SimulationMetadata) -> Entries:
    """Returns the entries as they are after a round trip through JSON."""
    environment = metadata.environment
    plain = MessageToDict(metadata, preserving_proto_field_name=True)
    entries: Entries = {
        "environment": {
            "dimensions": environment.dimensions,
            "shape": list(environment.shape),
            "toroidal": list(environment.toroidal),
        },
        "simulation_info": {
            "runId": metadata.simulation_run_id,
            "startTime": metadata.start_time_ms,
            "seed": metadata.initial_seed,
            "samplingInterval": metadata.sampling_interval,
        },
        "energy_strategies": plain.get("energy_strategies", []),
        "initial_organisms": plain.get("initial_organisms", []),
        "user_metadata": plain.get("user_metadata", {}),
        "resolved_config": metadata.resolved_config_json,
    }
    as_read: Entries = json.loads(json.dumps(entries))
    return as_read


def _metadata(location: Location, values: Mapping[str, Any]) -> SimulationMetadata:
    try:
        environment, info = values["environment"], values["simulation_info"]
        return SimulationMetadata(
            simulation_run_id=info["runId"],
            start_time_ms=info["startTime"],
            initial_seed=info["seed"],
            sampling_interval=info["samplingInterval"],
            environment=EnvironmentConfig(**environment),
        )
    except (LookupError, TypeError, ValueError) as error:
        run_id = location.run_id
        raise MetadataUnreadable(table=location, reason=f"it lacks {error}", run_id=run_id) from error
