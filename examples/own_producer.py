"""A simulation of your own as a producer: a pulse that runs around a ring of 1,000 cells.

python examples/own_producer.py DIRECTORY
"""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from ticklake import (
    CellColumns,
    Database,
    EnvironmentConfig,
    OrganismColumns,
    Producer,
    SimulationMetadata,
    Storage,
    TickColumns,
    new_run_id,
)

DATA = 1 << 16


def pulse(tick: int) -> TickColumns:
    """The three cells that light up in this tick, as numpy columns."""
    cells = (np.arange(3) + 7 * tick) % 1000
    columns = CellColumns(cells, np.full(3, DATA), np.array([50, 100, 50]), np.zeros(3, np.int32))
    return TickColumns(tick, int(time.time() * 1000), columns, OrganismColumns())


def main(directory: Path) -> str:
    ring = EnvironmentConfig(dimensions=1, shape=[1000], toroidal=[True])
    run_id = new_run_id(datetime.now(UTC))
    metadata = SimulationMetadata(simulation_run_id=run_id, environment=ring, sampling_interval=1, format_version=1)
    storage = Storage(str(directory / "storage"))
    with Database(f"sqlite:///{directory / 'db'}") as database, Producer(database, storage, metadata) as producer:
        for tick in range(250):
            producer.emit(pulse(tick))
    files = storage.batches(run_id).files
    print(f"run {run_id}: {len(files)} batch files, last tick {files[-1].ticks.end}, complete")
    return run_id


if __name__ == "__main__":
    main(Path(sys.argv[1]))
