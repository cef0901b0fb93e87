"""What tables must hold in the end, what they do hold, and what is left beside them."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import numpy as np
from deltalake import DeltaTable

from ticklake.lake.delta import Location
from ticklake.lake.upkeep.vacuum import Vacuum
from ticklake.simulation import Ecosystem, SimulationSettings

KEYS = {"environment_data": "cell_id", "organism_data": "organism_id"}


def simulated(settings: SimulationSettings, ticks: int) -> dict[str, set[tuple[int, int]]]:
    """The keys of each table, as the simulation itself says: the same seed gives the same ticks."""
    world = Ecosystem(settings)
    keys: dict[str, set[tuple[int, int]]] = {table: set() for table in KEYS}
    for _ in range(ticks):
        seen = world.columns(0)
        keys["environment_data"] |= {(seen.number, int(cell)) for cell in np.unique(seen.cells.flat_index)}
        keys["organism_data"] |= {(seen.number, int(one)) for one in seen.organisms.organism_id}
        world.step()
    return keys


def indexed(directory: Path, key: str) -> Counter[tuple[int, int]]:
    """How often each key is in a table."""
    rows = DeltaTable(directory).to_pyarrow_table(columns=["tick_number", key])
    return Counter(zip(rows["tick_number"].to_pylist(), rows[key].to_pylist(), strict=True))


def orphans(directory: Path) -> list[Path]:
    """Files of no table that vacuum does not remove."""
    vacuum = Vacuum(Location.of(directory), directory.parent.name, 0, force=True, clock=lambda: time.time() + 10)
    list(vacuum.remove(vacuum.find()))
    live = {Path(uri).name for uri in DeltaTable(directory).file_uris()}
    return [path for path in directory.glob("*.parquet") if path.name not in live]
