"""A run in storage some of whose batch files are bad, and what the tables must hold of it."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ticklake import SimulationMetadata
from ticklake.contracts import FORMAT_VERSION, EnvironmentConfig, RunCompleted
from ticklake.storage.codec import NO_PARENT, CellColumns, OrganismColumns, TickColumns, encode_ticks
from ticklake.storage.files import Storage
from ticklake.storage.names import batch_name
from ticklake.ticks import TickRange

WIDTH, CELLS, TICKS = 10, 4, 20
BAD = ("cell", "torn", "misnamed")
"""One cell outside the world in one tick; cut off; under a name that promises other ticks, far beyond its own."""


class File(NamedTuple):
    """`fate` is `good`, one of `BAD`, or `never`: its ticks are nowhere. A `twin` is a good file after a bad one."""

    ticks: TickRange
    fate: str
    twin: bool = False

    @property
    def counts(self) -> bool:
        return self.fate == "good" or self.twin


class SpoiledRun:
    """Files in the order in which they come, made from a seed."""

    def __init__(self, storage: Path, run_id: str, rng: random.Random, files: int) -> None:
        self._storage, self._run_id, self._rng = storage, run_id, rng
        self.step = rng.choice((1, 10))
        fates = rng.choices(("good", "never", *BAD), (70, 8, 10, 6, 6), k=files)
        # Two that are always there: a bad file among good ones, and a missing end.
        fates[rng.randrange(files - 2)], fates[-1] = "cell", rng.choice(("never", "good"))
        self.files = [
            File(self._ticks(number), fate, fate in BAD and rng.random() < 0.5) for number, fate in enumerate(fates)
        ]
        environment = EnvironmentConfig(dimensions=2, shape=(WIDTH, WIDTH), toroidal=[True, True])
        Storage(storage).write_metadata(
            SimulationMetadata(
                simulation_run_id=run_id, environment=environment, sampling_interval=self.step, format_version=1
            )
        )

    @property
    def last_tick(self) -> int:
        return self.files[-1].ticks.end

    def keys(self) -> set[tuple[int, int]]:
        """What the table of cells must hold."""
        return {(tick, cell) for tick in self._good_ticks() for cell in _cells(tick // self.step)}

    def missing(self) -> set[int]:
        """The ticks that must be known as missing."""
        return {*range(0, self.last_tick + 1, self.step)} - {*self._good_ticks()}

    def arrive(self, number: int) -> list[str]:
        """Writes a file, and later its twin; their keys."""
        file = self.files[number]
        if file.fate == "never":
            return []
        keys = [self._write(file, file.fate)]
        return keys + ([self._write(file, "twin")] if file.twin else [])

    def complete(self) -> None:
        end = RunCompleted(simulation_run_id=self._run_id, last_tick=self.last_tick, format_version=FORMAT_VERSION)
        Storage(self._storage).write_completion(end)

    def _good_ticks(self) -> Iterable[int]:
        return (tick for file in self.files if file.counts for tick in self._numbers(file.ticks))

    def _ticks(self, number: int) -> TickRange:
        return TickRange(number * TICKS * self.step, ((number + 1) * TICKS - 1) * self.step)

    def _numbers(self, ticks: TickRange) -> range:
        return range(ticks.start, ticks.end + 1, self.step)

    def _write(self, file: File, fate: str) -> str:
        """A bad file and its twin differ in their compression, and so in their names."""
        bad_tick = self._rng.choice(self._numbers(file.ticks)) if fate == "cell" else None
        ticks = [_tick(number, number // self.step, number == bad_tick) for number in self._numbers(file.ticks)]
        encoded = encode_ticks(self._run_id, ticks)
        key = Storage(self._storage, compress=fate == "twin").write_batch(self._run_id, encoded).key
        path = self._storage / key
        if fate == "torn":
            path.write_bytes(path.read_bytes()[: -self._rng.randint(1, 200)])
        if fate == "misnamed":
            far = TickRange(file.ticks.start, file.ticks.end + self._rng.choice((1, 1000)) * TICKS * self.step)
            path = path.rename(path.with_name(batch_name(far, compressed=False)))
        return f"{self._run_id}/{path.name}"


def _cells(place: int) -> list[int]:
    return [(place + 7 * cell) % WIDTH**2 for cell in range(CELLS)]


def _tick(number: int, place: int, bad: bool) -> TickColumns:
    cells, one = np.array(_cells(place)), np.ones(CELLS, np.int32)
    if bad:
        cells[-1] = WIDTH**2 + 7
    return TickColumns(
        number,
        number * 1000,
        CellColumns(cells, one << 16, one, one),
        OrganismColumns(
            organism_id=np.array([1]),
            parent_id=np.array([NO_PARENT]),
            birth_tick=np.array([0]),
            energy=np.array([number % 1000]),
            position=np.array([[number % WIDTH, 3]]),
            is_dead=np.array([False]),
            program_id=["p"],
        ),
    )
