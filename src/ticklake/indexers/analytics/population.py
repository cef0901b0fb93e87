"""The organisms of some ticks: who is alive, who was born and who died since the recording before."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ticklake.storage import FORMAT
from ticklake.world import World

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

LIFE = ("tick_number", "organisms.birth_tick", "organisms.is_dead", "organisms.death_tick")
"""What tells who is alive, newborn or dead."""

_RECORD_THE_DEAD = frozenset({"E", "F", "G"})
_MAY_RECORD_THE_DEAD = frozenset({"D"})
_RECORD_OPCODES = frozenset({"B", "C", "D", "E", "F", "G"})


class Population:
    """The organisms of some ticks, in the order of the ticks. An array has one value for each organism."""

    def __init__(self, ticks: pa.RecordBatch, world: World | None) -> None:
        lists = ticks.column("organisms")
        self.tick_numbers: Ints = ticks.column("tick_number").to_numpy()
        self.organisms: pa.StructArray = lists.flatten()
        sizes = np.diff(lists.offsets.to_numpy())
        self.empty: Bools = sizes == 0
        """Whether a tick has no organisms, living or dead."""
        self.places: Ints = np.repeat(np.arange(len(ticks)), sizes)
        """The tick of each organism, as its position in the batch."""
        self.step = world.sampling_interval if world else 1
        self.format = (ticks.schema.metadata or {}).get(FORMAT, b"").decode()

    def __len__(self) -> int:
        return len(self.organisms)

    def column(self, name: str) -> pa.Array:
        return self.organisms.field(name)

    def numbers(self, name: str) -> npt.NDArray[Any]:
        """Returns a column of integers, with 0 for null."""
        column = self.column(name)
        numbers: npt.NDArray[Any] = (pc.fill_null(column, 0) if column.null_count else column).to_numpy()
        return numbers

    def known(self, name: str) -> Bools:
        """Returns for each organism whether a column has a value."""
        known: Bools = self.column(name).is_valid().to_numpy(zero_copy_only=False)
        return known

    def flags(self, name: str) -> Bools:
        flags: Bools = self.column(name).to_numpy(zero_copy_only=False)
        return flags

    @cached_property
    def ticks(self) -> Ints:
        """The number of the tick of each organism."""
        return self.tick_numbers[self.places]

    @cached_property
    def alive(self) -> Bools:
        return ~self.flags("is_dead")

    @cached_property
    def newborn(self) -> Bools:
        """Whether it was born after the recording before. Each organism is newborn in one recording only."""
        births = self.numbers("birth_tick")
        newborn: Bools = (births > self.ticks - self.step) & (births <= self.ticks)
        return newborn

    @cached_property
    def died(self) -> Bools:
        """Whether it died after the recording before. The storage leaves out the dead that a resume recorded again."""
        return ~self.alive

    @property
    def births_are_complete(self) -> bool | None:
        """Whether every birth is recorded. None: the format does not tell.

        If only the living are recorded, an organism that lived between two recordings is missing.
        """
        if self.format in _RECORD_THE_DEAD or self.step == 1:
            return True
        return None if self.format in _MAY_RECORD_THE_DEAD else False

    @property
    def tells_the_dead(self) -> Bools:
        """Whether each tick, if nobody is recorded as dead, says that nobody died.

        Not every build of format D records the dead. Without organisms D and E look alike, so both count as E: the rows
        of a tick must not depend on the other ticks of its file.
        """
        if self.format in _RECORD_THE_DEAD:
            return np.ones(len(self.empty), np.bool_)
        return self.empty & (self.format in _MAY_RECORD_THE_DEAD)

    @property
    def records_opcodes(self) -> bool:
        """Whether every build that wrote this format records what organisms execute."""
        return self.format in _RECORD_OPCODES

    def count(self, which: Bools) -> Ints:
        """Returns for each tick how many organisms are chosen."""
        return np.bincount(self.places[which], minlength=len(self.tick_numbers))

    def taken(self, which: Bools) -> Subset:
        """Returns some of the organisms."""
        return Subset(self, np.flatnonzero(which))


class Subset:
    """Some organisms of a population, by their positions in it."""

    def __init__(self, population: Population, positions: Ints) -> None:
        self.population, self.positions = population, positions
        self._indices = pa.array(positions)

    def column(self, name: str) -> pa.Array:
        return self.population.column(name).take(self._indices)

    def numbers(self, name: str) -> npt.NDArray[Any]:
        return self.population.numbers(name)[self.positions]

    @property
    def ticks(self) -> Ints:
        return self.population.ticks[self.positions]
