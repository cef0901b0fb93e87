"""The `metadata` table of a run: key and value (JSON). Its first commit holds everything, so it is there or it is not."""

from __future__ import annotations

import json
import time
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, create_table_with_add_actions
from google.protobuf.json_format import MessageToDict

from ticklake.contracts import EnvironmentConfig, SimulationMetadata
from ticklake.errors import LakeUnwritable
from ticklake.lake.durable import make_directory, sync_directory, sync_file
from ticklake.lake.ledger import FORMAT, set_torn_commit_aside

SCHEMA = pa.schema([pa.field("key", pa.string()), pa.field("value", pa.string())])
TABLE = "metadata"


def write_metadata(directory: Path, metadata: SimulationMetadata) -> bool:
    """Creates the table with the run's metadata in one commit. False where it was there already."""
    log = directory / "_delta_log"
    set_torn_commit_aside(log)
    if read_metadata(directory) is not None:
        return False
    try:
        make_directory(log)
        add = _write_file(directory, _entries(metadata))
        return _create(directory, add)
    except OSError as error:
        raise LakeUnwritable(directory=str(directory), reason=error) from error


def read_metadata(directory: Path) -> SimulationMetadata | None:
    """What indexers need of the run's metadata, from the table; None as long as the table is not there."""
    try:
        rows = DeltaTable(directory).to_pyarrow_table().to_pylist()
    except (TableNotFoundError, FileNotFoundError):
        return None
    values = {row["key"]: json.loads(row["value"]) for row in rows}
    return _metadata(values) if values else None


def _create(directory: Path, add: AddAction) -> bool:
    try:
        create_table_with_add_actions(
            str(directory), SCHEMA, [add], mode="error", name=TABLE, configuration={"ticklake.format": FORMAT}
        )
    except DeltaError:
        # Another indexer was faster; anything else that went wrong shows on the next read.
        (directory / add.path).unlink(missing_ok=True)
        if read_metadata(directory) is None:
            raise
        return False
    log = directory / "_delta_log"
    for commit in log.glob("*.json"):
        sync_file(commit)
    sync_directory(log)
    return True


def _write_file(directory: Path, entries: dict[str, Any]) -> AddAction:
    path = directory / f"{uuid.uuid4().hex}.parquet"
    values = [json.dumps(value, sort_keys=True) for value in entries.values()]
    pq.write_table(pa.table([list(entries), values], schema=SCHEMA), path, compression="zstd")
    sync_file(path)
    sync_directory(directory)
    stats = json.dumps({"numRecords": len(entries)})
    return AddAction(path.name, path.stat().st_size, {}, int(time.time() * 1000), True, stats)


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
