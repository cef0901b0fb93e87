from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticklake.contracts import EnvironmentConfig, SimulationMetadata
from ticklake.errors import BadMetadata
from ticklake.world import World


def metadata(**changes: Any) -> SimulationMetadata:
    environment = {"dimensions": 2, "shape": [4, 5], "toroidal": [True, False]}
    environment |= {name: changes.pop(name) for name in list(changes) if name in environment}
    fields = {"simulation_run_id": "run", "sampling_interval": 10} | changes
    return SimulationMetadata(environment=EnvironmentConfig(**environment), **fields)


def test_a_world_is_what_the_metadata_says() -> None:
    world = World.of(metadata(format_version=1))
    assert world == World("run", (4, 5), (True, False), 10)
    assert world.cells == 20


def test_edges_that_are_not_mentioned_are_not_toroidal() -> None:
    assert World.of(metadata(toroidal=[])).toroidal == (False, False)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_coordinates_are_row_major_over_the_shape(shape: list[int]) -> None:
    world = World.of(metadata(shape=shape, dimensions=len(shape), toroidal=[]))
    ids = np.arange(world.cells, dtype=np.int32)
    found = world.coordinates(ids)
    assert all((axis == wanted).all() for axis, wanted in zip(found, np.unravel_index(ids, shape), strict=True))
    assert {axis.dtype for axis in found} == {np.dtype(np.int32)}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"shape": []}, "no shape"),
        ({"shape": [4, 0]}, "not positive"),
        ({"shape": [4, -5]}, "not positive"),
        ({"shape": [-4, -5]}, "not positive"),
        ({"dimensions": 3}, "dimensions is 3"),
        ({"toroidal": [True]}, "toroidal has 1"),
        ({"shape": [2**16, 2**16]}, "more cells"),
        ({"sampling_interval": 0}, "sampling_interval is 0"),
        ({"sampling_interval": -1}, "sampling_interval is -1"),
        ({"format_version": 2}, "format_version 2"),
        ({"format_version": -1}, "format_version -1"),
        ({"simulation_run_id": ""}, "simulation_run_id is empty"),
    ],
)
def test_nonsense_is_refused_with_its_reason(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadMetadata, match=reason):
        World.of(metadata(**changes))
