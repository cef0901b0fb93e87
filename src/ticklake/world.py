"""The world of a run: the grid and the sampling interval in its metadata."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ticklake.contracts import FORMAT_VERSION, SimulationMetadata
from ticklake.errors import TickLakeError

MAX_CELLS = 2**31
"""`CellState.flat_index` is an int32, so it cannot address more cells."""

FORK = "evochora.fork"
"""The entry of `user_metadata` that says of which run, and of which of its ticks, a run is a fork."""
_FORK_TICKS = re.compile(r".* ([0-9]{1,18})-[0-9]{1,19}", re.DOTALL)


class BadMetadata(TickLakeError):
    message = (
        "The metadata of run {run_id!r} does not describe a valid world: {reason}. Check the producer that wrote it; a "
        "newer format needs a newer ticklake."
    )
    run_id: str
    reason: object


@dataclass(frozen=True)
class World:
    """Shape, edges and sampling of one run."""

    run_id: str
    shape: tuple[int, ...]
    toroidal: tuple[bool, ...]
    sampling_interval: int
    max_entropy: int | None = None
    """The entropy at which an organism dies, if the configuration of the run says it."""
    first_tick: int = 0
    """Where the run begins: after 0 if it is a fork, which records a part of another run again."""

    @classmethod
    def of(cls, metadata: SimulationMetadata) -> World:
        """Returns the world that `metadata` describes. Raises `BadMetadata` if it is not valid."""
        reason = _invalid_reason(metadata)
        if reason:
            raise BadMetadata(run_id=metadata.simulation_run_id, reason=reason)
        shape = tuple(metadata.environment.shape)
        toroidal = tuple(metadata.environment.toroidal) or (False,) * len(shape)
        fork = _FORK_TICKS.fullmatch(metadata.user_metadata.get(FORK, ""))
        first = int(fork[1]) if fork else 0
        return cls(
            metadata.simulation_run_id, shape, toroidal, metadata.sampling_interval, _max_entropy(metadata), first
        )

    @property
    def cells(self) -> int:
        """The number of cells."""
        return math.prod(self.shape)

    def coordinates(self, cell_ids: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], ...]:
        """Returns one array per dimension, in the order of `shape`, with the integer type of `cell_ids`."""
        reversed_axes, rest = [], np.asarray(cell_ids)
        for size in reversed(self.shape[1:]):
            above = rest // size
            reversed_axes.append(rest - above * size)
            rest = above
        return (rest, *reversed(reversed_axes))


def _max_entropy(metadata: SimulationMetadata) -> int | None:
    try:
        limit = json.loads(metadata.resolved_config_json)["runtime"]["organism"]["max-entropy"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None  # it is the configuration of another program, or of an older build
    return limit if type(limit) is int else None


def _invalid_reason(metadata: SimulationMetadata) -> str | None:
    """Returns why the metadata is not valid, or None."""
    environment = metadata.environment
    shape = list(environment.shape)
    dimensions = environment.dimensions or len(shape)
    edges = list(environment.toroidal) or shape
    problems = {
        f"format_version {metadata.format_version} is unknown here (known: 0 to {FORMAT_VERSION})": (
            not 0 <= metadata.format_version <= FORMAT_VERSION
        ),
        "simulation_run_id is empty": not metadata.simulation_run_id,
        "the world has no shape": not shape,
        f"a dimension of {shape} is not positive": any(size <= 0 for size in shape),
        f"dimensions is {dimensions}, but the shape is {shape}": dimensions != len(shape),
        f"toroidal has {len(edges)} entries, but the shape is {shape}": len(edges) != len(shape),
        f"{shape} has more cells than a flat_index can count ({MAX_CELLS})": math.prod(shape) > MAX_CELLS,
        f"sampling_interval is {metadata.sampling_interval}, not positive": metadata.sampling_interval <= 0,
    }
    return next((text for text, wrong in problems.items() if wrong), None)
