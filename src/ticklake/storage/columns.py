"""Ticks as a producer has them: a few numpy arrays for each tick, not an object for each cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.integer[Any]]

NO_PARENT = -1
"""In `OrganismColumns.parent_id`: this organism has no parent. The field is not set in the encoded message."""


class EncodedTick(NamedTuple):
    """One serialized `TickData`, without a length prefix."""

    number: int
    data: bytes


def _no_integers() -> Integers:
    return np.empty(0, np.int32)


def _no_positions() -> Integers:
    return np.empty((0, 2), np.int32)


@dataclass(frozen=True)
class CellColumns:
    """The occupied cells of a tick, with one array per field. All arrays have the same length."""

    flat_index: Integers = field(default_factory=_no_integers)
    molecule_type: Integers = field(default_factory=_no_integers)
    molecule_value: Integers = field(default_factory=_no_integers)
    owner_id: Integers = field(default_factory=_no_integers)

    def __post_init__(self) -> None:
        _same_length(self.flat_index, molecule_type=self.molecule_type, molecule_value=self.molecule_value,
                     owner_id=self.owner_id)  # fmt: skip

    def __len__(self) -> int:
        return len(self.flat_index)


@dataclass(frozen=True)
class OrganismColumns:
    """The organisms of a tick. `position` has a row per organism and a column per dimension, and becomes `ip`."""

    organism_id: Integers = field(default_factory=_no_integers)
    parent_id: Integers = field(default_factory=_no_integers)
    birth_tick: Integers = field(default_factory=_no_integers)
    energy: Integers = field(default_factory=_no_integers)
    position: Integers = field(default_factory=_no_positions)
    is_dead: npt.NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))
    program_id: Sequence[str] = ()

    def __post_init__(self) -> None:
        _same_length(self.organism_id, parent_id=self.parent_id, birth_tick=self.birth_tick, energy=self.energy,
                     position=self.position, is_dead=self.is_dead, program_id=self.program_id)  # fmt: skip
        if np.ndim(self.position) != 2:
            raise ValueError("position must have a row per organism and a column per dimension")

    def __len__(self) -> int:
        return len(self.organism_id)


@dataclass(frozen=True)
class TickColumns:
    """One tick of a run, before it is encoded."""

    number: int
    capture_time_ms: int
    cells: CellColumns
    organisms: OrganismColumns
    rng_state: bytes = b""


def _same_length(first: Sequence[Any] | Integers, **others: Sequence[Any] | npt.NDArray[Any]) -> None:
    for name, column in others.items():
        if len(column) != len(first):
            raise ValueError(f"{name} has {len(column)} entries, but the first column has {len(first)}")
