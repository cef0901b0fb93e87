"""The ground: one molecule per cell, on a toroidal grid."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]
Cells = npt.NDArray[np.intp]

ENERGY = 2 << 16
STRUCTURE = 3 << 16
MAX_VALUE = 2**15 - 1

_GROWTH = 6
_SPROUT, _SPREAD = 0.015, 0.4
_DECAY = 1 / 60
_FADE = 1 / 40
_CAPACITY = (20, 120)


class Field:
    """Energy grows and spreads depending on soil and light. Structure, left by the dead, decays into energy.

    `influx` counts the energy from the sun, `dissipated` the energy lost as heat. `total` is always the initial
    energy plus `influx`, minus `dissipated`, plus what organisms returned.
    """

    def __init__(self, shape: tuple[int, int], rng: np.random.Generator) -> None:
        self.shape = shape
        size = shape[0] * shape[1]
        self.capacity = _soil(shape, rng)
        self.value = (self.capacity * rng.random(size, np.float32) * 0.8).astype(np.int32)
        self.kind = np.full(size, ENERGY, np.int32)
        self.owner = np.zeros(size, np.int32)
        self.influx = 0
        self.dissipated = 0

    @property
    def total(self) -> int:
        return int(self.value.sum(dtype=np.int64))

    def live(self, light: float, rng: np.random.Generator) -> None:
        """Computes growth, decay and fading of trails. They exclude each other, so one draw per cell is enough."""
        draw = rng.random(len(self.value), np.float32)
        green = self.kind == ENERGY
        self._grow(green & (self.value < self.capacity), draw, light)
        self.kind[~green & (draw < _DECAY)] = ENERGY
        self.owner[draw > 1 - _FADE] = 0

    def _grow(self, able: npt.NDArray[np.bool_], draw: npt.NDArray[np.float32], light: float) -> None:
        chance = self._neighbourhood() * np.float32(light * _SPREAD / (4 * _CAPACITY[1])) + np.float32(light * _SPROUT)
        growing = able & (draw < chance)
        self.value[growing] += _GROWTH
        self.influx += _GROWTH * int(np.count_nonzero(growing))

    def _neighbourhood(self) -> npt.NDArray[np.float32]:
        """Returns the energy in the four neighbours of each cell."""
        grid = np.pad(self.value.reshape(self.shape).astype(np.float32), 1, mode="wrap")
        around = grid[:-2, 1:-1] + grid[2:, 1:-1] + grid[1:-1, :-2] + grid[1:-1, 2:]
        return around.ravel()

    def around(self, cells: Cells) -> Cells:
        """Returns a row per cell: the cell and its four neighbours."""
        height, width = self.shape
        y, x = np.divmod(cells, width)
        north, south = (y - 1) % height * width + x, (y + 1) % height * width + x
        west, east = y * width + (x - 1) % width, y * width + (x + 1) % width
        return np.stack((cells, north, south, west, east), axis=1)

    def edible(self, cells: Cells) -> Ints:
        return np.where(self.kind[cells] == ENERGY, self.value[cells], 0)

    def graze(self, cells: Cells, wanted: Ints, eaters: Ints) -> Ints:
        """Removes up to `wanted` energy from each of these distinct cells and leaves the eater's trail."""
        eaten = np.minimum(wanted, self.edible(cells))
        self.value[cells] -= eaten
        self.owner[cells] = eaters
        return eaten

    def bury(self, cells: Cells, remains: Ints, owners: Ints) -> None:
        """Leaves the remains of the dead as structure. Energy above the limit of a cell is lost as heat."""
        np.add.at(self.value, cells, remains)
        excess = np.maximum(self.value[cells] - MAX_VALUE, 0)
        self.dissipated += int(excess[np.unique(cells, return_index=True)[1]].sum(dtype=np.int64))
        self.value[cells] = np.minimum(self.value[cells], MAX_VALUE)
        self.kind[cells] = STRUCTURE
        self.owner[cells] = owners

    def occupied(self) -> Cells:
        return np.flatnonzero((self.value > 0) | (self.owner > 0))


def _soil(shape: tuple[int, int], rng: np.random.Generator) -> Ints:
    """Returns the capacity of each cell: smooth hills from random waves that fit the torus."""
    y, x = np.meshgrid(*(np.linspace(0, 2 * np.pi, side, endpoint=False) for side in shape), indexing="ij")
    hills = np.zeros(shape)
    for waves in (1, 1, 2, 2, 3, 5):
        down, right, phase = rng.integers(-waves, waves + 1), rng.integers(1, waves + 1), rng.uniform(0, 2 * np.pi)
        hills += np.sin(down * y + right * x + phase) / waves
    low, high = _CAPACITY
    scaled = (hills - hills.min()) / (hills.max() - hills.min())
    soil: Ints = (low + scaled * (high - low)).astype(np.int32).ravel()
    return soil
