"""Runs to measure with: ticks of the simulation, repeated under new numbers for as many cells as it takes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

from ticklake.simulation import Ecosystem, SimulationSettings
from ticklake.storage.codec import EncodedTick, encode_ticks
from ticklake.storage.delimited import varint
from ticklake.storage.files import Storage

RUN_ID = "20251014-143025-550e8400"
_SIMULATED = 200
_TICK_NUMBER = b"\x10"


def produce(directory: Path, cells: int, ticks_a_file: int = 50) -> tuple[Storage, int]:
    """A run of about so many cells, and how many it has."""
    storage = Storage(directory / "storage")
    world = Ecosystem(SimulationSettings(shape=(128, 128), seed=7))
    storage.write_metadata(world.metadata(RUN_ID, 0))
    sizes, simulated = _simulate(world)
    ticks, total, number = _repeated(simulated), 0, 0
    while total < cells:
        file = list(islice(ticks, ticks_a_file))
        storage.write_batch(RUN_ID, file)
        total += sum(sizes[(number + place) % _SIMULATED] for place in range(len(file)))
        number += len(file)
    return storage, total


def _simulate(world: Ecosystem) -> tuple[list[int], list[EncodedTick]]:
    sizes, encoded = [], []
    for _ in range(_SIMULATED):
        columns = world.columns(0)
        sizes.append(len(columns.cells))
        encoded.extend(encode_ticks(RUN_ID, [columns]))
        world.step()
    return sizes, encoded


def _repeated(simulated: list[EncodedTick]) -> Iterator[EncodedTick]:
    """Of a protobuf field that is there twice the last one counts: a new number needs no new encoding."""
    for number in count():
        data = simulated[number % len(simulated)].data
        yield EncodedTick(number, data + _TICK_NUMBER + varint(number))
