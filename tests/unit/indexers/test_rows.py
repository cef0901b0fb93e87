"""What the indexers make of ticks, without Spark: `rows` is a pure function."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.indexers.builtin.organism import OrganismIndexer
from ticklake.storage.codec import read_ticks
from ticklake.world import World


def world(shape: tuple[int, ...]) -> World:
    return World("20251014-143025-550e8400", shape, (True,) * len(shape), 1)


def ticks_of(maker: Any, fields: tuple[str, ...], shape: tuple[int, ...] = (100,)) -> pa.RecordBatch:
    batch = maker.batch(0, 4)
    (ticks,) = read_ticks(maker.storage, maker.storage.batch(batch.storage_key), fields=fields, world=world(shape))
    return ticks


@pytest.mark.parametrize(
    ("shape", "place"),
    [((100,), (37, None, None)), ((10, 10), (3, 7, None)), ((5, 4, 5), (1, 3, 2)), ((5, 2, 5, 2), (1, 1, 3))],
)
def test_coordinates_come_from_the_shape_and_missing_dimensions_are_null(
    maker: Any, shape: tuple[int, ...], place: tuple[int | None, ...]
) -> None:
    ticks = ticks_of(maker, EnvironmentIndexer.reads, shape)
    rows = EnvironmentIndexer.rows(ticks, world(shape)).to_pylist()
    found = next(row for row in rows if row["cell_id"] == 37)
    assert (found["x"], found["y"], found["z"]) == place


def test_without_a_world_there_are_no_coordinates(maker: Any) -> None:
    row = EnvironmentIndexer.rows(ticks_of(maker, EnvironmentIndexer.reads), None).to_pylist()[0]
    assert (row["x"], row["y"], row["z"]) == (None, None, None)


def test_state_packs_type_and_value_as_the_original_does(maker: Any) -> None:
    for row in EnvironmentIndexer.rows(ticks_of(maker, EnvironmentIndexer.reads), None).to_pylist():
        assert row["state"] & 0xFFFF == row["molecule_value"] % 65536
        assert row["state"] >> 16 << 16 == row["molecule_type"]


def test_the_schema_is_the_tables_own(maker: Any, tmp_path: Path) -> None:
    for kind in (EnvironmentIndexer, OrganismIndexer):
        assert kind.rows(ticks_of(maker, kind.reads), world((100,))).schema == kind.table.schema


def test_age_counts_from_birth_and_an_organism_without_parent_has_none(maker: Any) -> None:
    rows = OrganismIndexer.rows(ticks_of(maker, OrganismIndexer.reads), None).to_pylist()
    assert [row["age"] for row in rows] == [0, 1, 2, 3, 4]
    assert {row["parent_id"] for row in rows} == {None}
