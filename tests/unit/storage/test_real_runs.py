"""Runs of the original: every figure that an independent decoder found in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ticklake.contracts import SimulationMetadata
from ticklake.storage.codec import read_ticks
from ticklake.storage.delimited import frame
from ticklake.storage.files import Storage
from ticklake.ticks import TickRange
from ticklake.world import World

FIELDS = (
    "cells",
    "organisms.organism_id",
    "organisms.ip",
    "organisms.energy",
    "organisms.birth_tick",
    "organisms.is_dead",
)
RUNS = (
    "20261115-20015548-2c9e2726-7747-4c42-981e-28eaf2f72311",
    "20261115-20021572-3385781b-7aba-4dca-813c-a4fdb5527651",
)


@pytest.fixture(params=RUNS, ids=["compressed", "plain"])
def run(request: pytest.FixtureRequest, shared_data: Path) -> tuple[Storage, str, dict[str, Any]]:
    return Storage(shared_data), request.param, json.loads((shared_data / request.param / "EXPECTED.json").read_text())


def test_the_runs_are_discovered(shared_data: Path) -> None:
    assert set(RUNS) <= set(Storage(shared_data).runs())


def test_metadata_files_and_bytes_are_as_expected(run: tuple[Storage, str, dict[str, Any]]) -> None:
    storage, run_id, expected = run
    world = World.of(storage.read_metadata(run_id))
    files = storage.batches(run_id).files
    assert (world.run_id, list(world.shape), list(world.toroidal)) == (
        expected["run_id"], expected["shape"], expected["toroidal"],
    )  # fmt: skip
    assert world.sampling_interval == expected["sampling_interval"]
    assert len(files) == expected["batch_files"]
    assert sum(decoded_bytes(storage, file.key) for file in files) == expected["decoded_bytes"]


def decoded_bytes(storage: Storage, key: str) -> int:
    with storage.open(key) as stream:
        return len(stream.read())


def test_every_figure_of_the_tables_is_as_expected(run: tuple[Storage, str, dict[str, Any]]) -> None:
    storage, run_id, expected = run
    world = World.of(storage.read_metadata(run_id))
    ticks = pa.Table.from_batches(
        [
            batch
            for file in storage.batches(run_id).files
            for batch in read_ticks(storage, file, fields=FIELDS, world=world)
        ]
    ).combine_chunks()
    numbers = ticks.column("tick_number").to_numpy()
    assert (len(numbers), len(set(numbers))) == (expected["ticks"], expected["distinct_ticks"])
    assert (numbers.min(), numbers.max()) == (expected["tick_min"], expected["tick_max"])
    assert environment(ticks, world) == expected["environment_data"]
    assert organisms(ticks, numbers) == expected["organism_data"]
    assert one_tick(ticks, expected["one_tick"]["tick_number"]) == expected["one_tick"]


def environment(ticks: pa.Table, world: World) -> dict[str, Any]:
    cells = ticks.column("cells").chunk(0).values
    value = {field.name: cells.field(field.name).to_numpy().astype(np.int64) for field in cells.type.fields}
    x, y = world.coordinates(value["flat_index"])
    sums = {
        "cell_id": value["flat_index"], "x": x, "y": y,
        "state": value["molecule_type"] | (value["molecule_value"] & 0xFFFF),
        "molecule_type": value["molecule_type"], "molecule_value": value["molecule_value"],
        "owner_id": value["owner_id"],
    }  # fmt: skip
    return {"rows": len(cells), "sums": {name: int(column.sum()) for name, column in sums.items()}}


def organisms(ticks: pa.Table, numbers: np.ndarray) -> dict[str, Any]:
    lists = ticks.column("organisms").chunk(0)
    value = lists.values
    components = np.stack(value.field("ip").field("components").to_numpy(zero_copy_only=False))
    tick = np.repeat(numbers, np.diff(lists.offsets.to_numpy()))
    sums = {
        "organism_id": value.field("organism_id").to_numpy(), "x": components[:, 0], "y": components[:, 1],
        "energy": value.field("energy").to_numpy(), "age": tick - value.field("birth_tick").to_numpy(),
        "dead": value.field("is_dead").to_numpy(zero_copy_only=False),
    }  # fmt: skip
    return {"rows": len(value), "sums": {name: int(column.sum()) for name, column in sums.items()}}


def one_tick(ticks: pa.Table, number: int) -> dict[str, int]:
    row = ticks.column("tick_number").to_pylist().index(number)
    counts = {name: len(ticks.column(name)[row]) for name in ("cells", "organisms")}
    return {"tick_number": number, **counts}


@pytest.mark.parametrize("compressed", [True, False])
def test_a_run_of_ours_in_the_originals_layout_is_read(bench: Any, compressed: bool) -> None:
    run_id = "20261115-20015548-2c9e2726-7747-4c42-981e-28eaf2f72311"
    storage = bench.storage
    metadata = SimulationMetadata(simulation_run_id=run_id, sampling_interval=1)
    root = Path(storage.url, run_id)
    (root / "000" / "000").mkdir(parents=True)
    ours = Storage(storage.url, compress=compressed)
    ours.write_metadata(metadata)
    for start in (100, 0):
        ticks = [bench.tick(number) for number in range(start, start + 100)]
        for tick in ticks:
            tick.simulation_run_id, tick.format_version = run_id, 0
        name = f"batch_{start:019d}_{start + 99:019d}.pb{'.zst' if compressed else ''}"
        written = bench.put(frame(tick.SerializeToString() for tick in ticks), TickRange(1, 2), compressed)
        Path(storage.url, written.key).rename(root / "000" / "000" / name)
    files = storage.batches(run_id).files
    assert [file.ticks for file in files] == [TickRange(0, 99), TickRange(100, 199)]
    assert [number for file in files for number in bench.numbers(file)] == list(range(200))
    assert storage.read_metadata(run_id).sampling_interval == 1
