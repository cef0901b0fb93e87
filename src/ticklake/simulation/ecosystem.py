"""The rules of the world: in each tick, organisms move, eat, pay upkeep, die and divide, in this order."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from ticklake.contracts import FORMAT_VERSION, EnvironmentConfig, SimulationMetadata
from ticklake.simulation.field import Cells, Field, Ints
from ticklake.simulation.lineages import BITE, DIVIDE_AT, LIFESPAN, WANDER, Lineages
from ticklake.simulation.organisms import Organisms
from ticklake.simulation.settings import SimulationSettings
from ticklake.storage import NO_PARENT, CellColumns, OrganismColumns, TickColumns

BODY = 30
"""Energy of a living body: paid by the parent, left in the ground after death."""

_START_ENERGY = 80
_MUTATION = 0.01
_WINTER = 0.15


class Ecosystem:
    """A seeded world. `step` computes a tick; `columns` returns it as arrays, without a Python object per cell."""

    def __init__(self, settings: SimulationSettings) -> None:
        self.settings = settings
        self.tick = 0
        self.born = settings.organisms
        self.lineages = Lineages()
        self._rng = np.random.default_rng(settings.seed)
        self.field = Field(settings.shape, self._rng)
        self.organisms = self._founders()

    @property
    def total_energy(self) -> int:
        """Energy in the ground, in the organisms and in their bodies. Only the sun adds to it, only heat reduces it."""
        return self.field.total + self.organisms.total_energy + BODY * self.organisms.alive

    @property
    def light(self) -> float:
        summer = 0.5 - 0.5 * math.cos(2 * math.pi * self.tick / self.settings.season_ticks)
        return _WINTER + (1 - _WINTER) * summer

    def step(self) -> None:
        self.tick += 1
        self.organisms = self.organisms.where(~self.organisms.is_dead)
        self.field.live(self.light, self._rng)
        moved = self._move()
        self._eat()
        self._pay(moved)
        self._die()
        self._divide()

    def columns(self, capture_time_ms: int) -> TickColumns:
        state = self._rng.bit_generator.state["state"]
        rng_state = state["state"].to_bytes(16, "little") + state["inc"].to_bytes(16, "little")
        return TickColumns(self.tick, capture_time_ms, self._cell_columns(), self._organism_columns(), rng_state)

    def metadata(self, run_id: str, start_time_ms: int) -> SimulationMetadata:
        return SimulationMetadata(
            simulation_run_id=run_id,
            start_time_ms=start_time_ms,
            initial_seed=self.settings.seed,
            environment=EnvironmentConfig(dimensions=2, shape=self.settings.shape, toroidal=(True, True)),
            resolved_config_json=self.settings.as_json(),
            sampling_interval=self.settings.sampling_interval,
            format_version=FORMAT_VERSION,
        )

    def _founders(self) -> Organisms:
        count = self.settings.organisms
        return Organisms(
            organism_id=np.arange(1, count + 1, dtype=np.int32),
            parent_id=np.full(count, NO_PARENT, np.int32),
            birth_tick=np.zeros(count, np.int64),
            lineage=np.arange(count, dtype=np.int32) % len(self.lineages),
            energy=np.full(count, _START_ENERGY, np.int32),
            cell=self._rng.integers(0, len(self.field.value), count),
            is_dead=np.zeros(count, np.bool_),
        )

    def _move(self) -> npt.NDArray[np.bool_]:
        """Moves each organism to the best cell in reach, or to a random one if it wanders."""
        who = self.organisms
        reach = self.field.around(who.cell)
        wandering = self._rng.integers(0, 100, len(who)) < self.lineages.trait(WANDER, who.lineage)
        appeal = np.where(wandering[:, None], 0, self.field.edible(reach)) + self._rng.random(reach.shape, np.float32)
        target = np.take_along_axis(reach, appeal.argmax(axis=1)[:, None], axis=1)[:, 0]
        moved: npt.NDArray[np.bool_] = target != who.cell
        who.cell = target
        return moved

    def _eat(self) -> None:
        """Feeds one organism per cell and tick, the oldest."""
        who = self.organisms
        cells, eldest = np.unique(who.cell, return_index=True)
        bite = self.lineages.trait(BITE, who.lineage[eldest])
        who.energy[eldest] += self.field.graze(cells, bite, who.organism_id[eldest])

    def _pay(self, moved: npt.NDArray[np.bool_]) -> None:
        who = self.organisms
        paid = np.minimum(self.lineages.upkeep(who.lineage) + moved, who.energy)
        who.energy -= paid
        self.field.dissipated += int(paid.sum(dtype=np.int64))

    def _die(self) -> None:
        who = self.organisms
        age = self.tick - who.birth_tick
        who.is_dead = (who.energy == 0) | (age >= self.lineages.trait(LIFESPAN, who.lineage))
        remains = who.energy[who.is_dead] + np.int32(BODY)
        self.field.bury(who.cell[who.is_dead], remains, who.organism_id[who.is_dead])
        who.energy[who.is_dead] = 0

    def _divide(self) -> None:
        """Splits the parent's energy, minus the new body, in two halves. The child starts in a neighbouring cell."""
        who = self.organisms
        ready = ~who.is_dead & (who.energy >= self.lineages.trait(DIVIDE_AT, who.lineage))
        share = (who.energy[ready] - BODY) // 2
        who.energy[ready] -= share + np.int32(BODY)
        self.organisms = who.joined(self._children(who.where(ready), share))

    def _children(self, parents: Organisms, energy: Ints) -> Organisms:
        count = len(parents)
        self.born += count
        return Organisms(
            organism_id=np.arange(self.born - count + 1, self.born + 1, dtype=np.int32),
            parent_id=parents.organism_id,
            birth_tick=np.full(count, self.tick, np.int64),
            lineage=self._inherited(parents.lineage),
            energy=energy,
            cell=self._neighbours(parents.cell),
            is_dead=np.zeros(count, np.bool_),
        )

    def _inherited(self, lineage: Ints) -> Ints:
        mutants = self._rng.random(len(lineage)) < _MUTATION
        inherited = lineage.copy()
        inherited[mutants] = self.lineages.mutate(lineage[mutants], self._rng)
        return inherited

    def _neighbours(self, cells: Cells) -> Cells:
        direction = self._rng.integers(1, 5, len(cells))
        return self.field.around(cells)[np.arange(len(cells)), direction]

    def _cell_columns(self) -> CellColumns:
        occupied = self.field.occupied()
        field = self.field
        return CellColumns(
            flat_index=occupied.astype(np.int32),
            molecule_type=field.kind[occupied],
            molecule_value=field.value[occupied],
            owner_id=field.owner[occupied],
        )

    def _organism_columns(self) -> OrganismColumns:
        who = self.organisms
        return OrganismColumns(
            organism_id=who.organism_id,
            parent_id=who.parent_id,
            birth_tick=who.birth_tick,
            energy=who.energy,
            position=np.stack(np.divmod(who.cell.astype(np.int32), np.int32(self.settings.shape[1])), axis=1),
            is_dead=who.is_dead,
            program_id=[self.lineages.names[lineage] for lineage in who.lineage.tolist()],
        )
