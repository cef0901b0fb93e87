"""All organisms: one array per property, in the order of birth."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from ticklake.simulation.field import Cells, Ints


@dataclass
class Organisms:
    organism_id: Ints
    parent_id: Ints
    birth_tick: npt.NDArray[np.int64]
    lineage: Ints
    energy: Ints
    cell: Cells
    is_dead: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.organism_id)

    @property
    def alive(self) -> int:
        return len(self) - int(np.count_nonzero(self.is_dead))

    @property
    def total_energy(self) -> int:
        return int(self.energy.sum(dtype=np.int64))

    def where(self, chosen: npt.NDArray[np.bool_]) -> Organisms:
        return Organisms(*(getattr(self, field.name)[chosen] for field in fields(self)))

    def joined(self, others: Organisms) -> Organisms:
        pairs = ((getattr(self, field.name), getattr(others, field.name)) for field in fields(self))
        return Organisms(*(np.concatenate(pair) for pair in pairs))
