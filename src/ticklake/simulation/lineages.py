"""Lineages: all organisms of a lineage share its traits. A mutation founds a new lineage."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]

BITE, DIVIDE_AT, LIFESPAN, WANDER = range(4)
_FOUNDERS = {
    "grazer": (12, 150, 90, 5),
    "roamer": (18, 180, 70, 30),
    "hoarder": (14, 320, 140, 15),
}
_LIMITS = np.array([(4, 40), (80, 600), (30, 300), (0, 90)], np.int32)
_STEP = np.array([2, 20, 10, 5])


class Lineages:
    """Traits per lineage: bite per tick, energy to divide, lifetime in ticks, percentage of moves that ignore food."""

    def __init__(self) -> None:
        self.names = list(_FOUNDERS)
        self._traits = np.array(list(_FOUNDERS.values()), np.int32)

    def __len__(self) -> int:
        return len(self.names)

    def trait(self, which: int, lineages: Ints) -> Ints:
        traits: Ints = self._traits[lineages, which]
        return traits

    def upkeep(self, lineages: Ints) -> Ints:
        """Returns the energy that a body costs per tick. A larger bite and a longer life cost more."""
        return 1 + self.trait(BITE, lineages) // 8 + self.trait(LIFESPAN, lineages) // 100

    def mutate(self, parents: Ints, rng: np.random.Generator) -> Ints:
        """Creates a new lineage for each parent, one step away in every trait."""
        first = len(self.names)
        changed = self._traits[parents] + np.rint(rng.normal(0, 1, (len(parents), 4)) * _STEP).astype(np.int32)
        self._traits = np.concatenate((self._traits, np.clip(changed, _LIMITS[:, 0], _LIMITS[:, 1])))
        for number, parent in enumerate(parents.tolist(), first):
            self.names.append(f"{self.names[parent].partition('-')[0]}-{number}")
        return np.arange(first, len(self.names), dtype=np.int32)
