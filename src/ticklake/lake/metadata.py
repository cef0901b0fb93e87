"""The `metadata` table of a run: key and value (JSON), all in one commit, so it is there or it is not."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from google.protobuf.json_format import MessageToDict

from ticklake import faults
from ticklake.contracts import EnvironmentConfig, SimulationMetadata
from ticklake.lake.delta import (
    CommitConflict,
    DeltaError,
    DeltaLog,
    DeltaTable,
    ParquetFile,
    TableNotFoundError,
    dataset_of,
    finish,
    make_directory,
    one_line,
)
from ticklake.lake.errors import LakeUnreadable, LakeUnwritable

SCHEMA = pa.schema([pa.field("key", pa.string()), pa.field("value", pa.string())])
TABLE = "metadata"


def write_metadata(directory: Path, metadata: SimulationMetadata) -> bool:
    """Writes the run's metadata in one commit. False where it was there already."""
    make_directory(directory)
    log = DeltaLog(directory, TABLE, SCHEMA)
    while not len(log.files):
        file = _write_file(directory, _entries(metadata))
        try:
            log.commit([file], {})
            return True
        except CommitConflict:
            # Another indexer was faster, and there is only one metadata to write; or the table was made anew.
            log.discard([file])
    # It may be the commit of somebody who died before it was on disk.
    log.sync()
    return False


def read_metadata(directory: Path) -> SimulationMetadata | None:
    """What indexers need of the run's metadata, from the table; None as long as the table is not there."""
    try:
        rows = dataset_of(DeltaTable(directory), directory).to_table().to_pylist()
    except (TableNotFoundError, FileNotFoundError):
        return None
    except (DeltaError, OSError) as error:
        raise LakeUnreadable(table=str(directory), reason=one_line(error)) from error
    values = {row["key"]: json.loads(row["value"]) for row in rows}
    return _metadata(values) if values else None


def _write_file(directory: Path, entries: dict[str, Any]) -> ParquetFile:
    path = directory / f"{uuid.uuid4().hex}.parquet"
    values = [json.dumps(value, sort_keys=True) for value in entries.values()]
    try:
        with faults.around("lake.metadata.write"):
            pq.write_table(pa.table([list(entries), values], schema=SCHEMA), path, compression="zstd")
        return finish(path)
    except OSError as error:
        raise LakeUnwritable(directory=str(directory), reason=error) from error


def _entries(metadata: SimulationMetadata) -> dict[str, Any]:
    environment = metadata.environment
    plain = MessageToDict(metadata, preserving_proto_field_name=True)
    return {
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


def _metadata(values: dict[str, Any]) -> SimulationMetadata:
    environment, info = values["environment"], values["simulation_info"]
    return SimulationMetadata(
        simulation_run_id=info["runId"],
        start_time_ms=info["startTime"],
        initial_seed=info["seed"],
        sampling_interval=info["samplingInterval"],
        environment=EnvironmentConfig(**environment),
    )
