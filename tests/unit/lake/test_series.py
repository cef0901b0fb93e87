"""Figures over ticks: buckets, sums, and how much is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticklake.errors import InvalidOption
from ticklake.indexers.builtin.organism import OrganismIndexer
from ticklake.lake.delta.parquet import ParquetFileWriter
from ticklake.lake.lake import Lake
from ticklake.lake.read.catalog import Catalog
from ticklake.lake.read.frames import Frames, OpenTable
from ticklake.lake.read.series import SOURCES, Series, affordable, bucketed, divided, tallied
from ticklake.ticks import TickRange

RUN = "20261014-143025-550e8400"
ORGANISMS, CELLS = SOURCES
TABLE = OrganismIndexer.table
assert TABLE is not None


def organisms(ticks: list[int], energy: int = 10, dead_after: int = 10**9) -> pa.RecordBatch:
    """At tick t organisms 0 to t % 5, one of them born at t as a child of 7, dead from some tick on."""
    rows = [(tick, one) for tick in ticks for one in range(tick % 5 + 1)]
    return pa.RecordBatch.from_pylist(
        [
            {
                "tick_number": tick,
                "organism_id": one,
                "energy": energy + one,
                "birth_tick": tick if one == 0 else 0,
                "parent_id": 7 if one == 0 else None,
                "is_dead": tick > dead_after,
            }
            for tick, one in rows
        ],
        schema=TABLE.schema,
    )


@pytest.fixture
def series(tmp_path: Path) -> Series:
    """Three files of 100 ticks."""
    ledger = Lake(tmp_path).ledger(RUN, TABLE)
    files = []
    for start in (0, 100, 200):
        writer = ParquetFileWriter(ledger.location, f"{start}.parquet", TABLE)
        writer.append(organisms(list(range(start, start + 100))))
        file = writer.close()
        assert file is not None
        files.append(file)
    ledger.commit(files, {})
    return Series(Frames(Catalog(tmp_path)))


@given(st.integers(0, 50), st.integers(1, 400), st.integers(1, 7), st.integers(1, 60), st.integers(1, 20))
def test_buckets_cover_every_tick_once_and_samples_lie_in_them(
    start: int, samples: int, step: int, parts: int, count: int
) -> None:
    ticks = TickRange(start * step, (start + samples - 1) * step)
    buckets = divided(ticks, step, parts)
    assert buckets.every() == ticks
    lengths = np.diff(buckets.edges)
    assert (lengths > 0).all() and lengths.max() - lengths.min() <= step
    some = buckets.some(count)
    assert len(set(some.tolist())) == len(some) and ((some - ticks.start) % step == 0).all()
    held = np.bincount(np.searchsorted(buckets.edges, some, "right") - 1, minlength=len(lengths))
    assert held.tolist() == np.minimum(lengths // step, count).tolist()


@given(st.integers(2, 1000), st.integers(1, 10**9), st.floats(0, 10**7), st.integers(10**6, 10**8))
def test_what_is_read_is_bounded_whatever_the_size(parts: int, samples: int, rows: float, most: int) -> None:
    buckets, reads = affordable(parts, samples, rows, most)
    assert 2 <= buckets <= parts and reads >= 1
    if reads < samples:
        assert buckets * reads * rows <= max(most, 2 * rows)


def test_a_row_without_a_tick_counts_for_none() -> None:
    rows = organisms([3, 4])
    null = pa.RecordBatch.from_arrays([pa.nulls(1, field.type) for field in rows.schema], schema=rows.schema)
    (mixed,) = pa.Table.from_batches([rows, null]).combine_chunks().to_batches()
    for ours, theirs in zip(tallied([rows], ORGANISMS, 1), tallied([mixed, null], ORGANISMS, 1), strict=True):
        assert (ours.tolist(), ours.dtype) == (theirs.tolist(), theirs.dtype)


def test_rows_of_a_tick_in_several_batches_are_summed() -> None:
    whole = tallied([organisms([3, 4, 9])], ORGANISMS, 1)
    parts = tallied([organisms([9]), organisms([3, 4]).slice(0, 2), organisms([3, 4]).slice(2)], ORGANISMS, 1)
    assert whole.ticks.tolist() == parts.ticks.tolist() == [3, 4, 9]
    assert whole.sums.tolist() == parts.sums.tolist()
    assert whole.known.tolist() == parts.known.tolist()
    assert whole.sums.tolist() == [[4, 5, 5], [1, 1, 1], [46, 60, 60], [0, 0, 0]]
    assert whole.known[-1].tolist() == [False, True, False], "deaths need the tick before"


def test_the_dead_are_no_population_and_births_are_those_since_the_last_sample() -> None:
    found = tallied([organisms([1, 2], dead_after=1)], ORGANISMS, 1)
    assert dict(zip(ORGANISMS.figures, found.sums.tolist(), strict=True)) == {
        "population": [2, 0],
        "births": [1, 1],
        "energy": [21, 0],
        "deaths": [0, 2 + 1],
    }
    assert tallied([organisms([4])], ORGANISMS, 5).sums[1].tolist() == [1], "those without a parent are founders"


Rows = dict[int, tuple[set[int], set[int]]]


@given(
    st.dictionaries(st.integers(0, 12), st.tuples(st.sets(st.integers(1, 6)), st.sets(st.integers(7, 9))), min_size=1),
    st.integers(1, 3),
    st.randoms(),
    st.integers(1, 9),
)
def test_deaths_are_who_lived_a_tick_before_and_does_not_any_more(
    rows: Rows, step: int, random: Random, size: int
) -> None:
    """The living and the dead of each tick, against sets; whatever order and pieces the rows come in."""
    lines = [
        {"tick_number": tick * step, "organism_id": one, "birth_tick": 0, "energy": 1, "is_dead": one in dead}
        for tick, (living, dead) in rows.items()
        for one in living | dead
    ]
    random.shuffle(lines)
    pieces = [lines[at : at + size] for at in range(0, len(lines), size)]
    batches = [pa.RecordBatch.from_pylist(piece, schema=TABLE.schema) for piece in pieces]
    recorded = np.array(sorted(tick * step for tick in rows), np.int64)
    found = tallied(batches, ORGANISMS, step, recorded)
    assert found.ticks.tolist() == recorded.tolist(), "a tick without a row counts"
    for place, tick in enumerate(sorted(rows)):
        born = rows[tick][1] if tick == 0 else set()
        before = rows.get(tick - 1)
        gone = before[0] - rows[tick][0] if before else set()
        assert found.known[-1][place] == (tick == 0 or before is not None)
        if found.known[-1][place]:
            assert found.sums[-1][place] == len(gone) + len(born)
        assert found.sums[0][place] == len(rows[tick][0])


def test_a_bucket_without_a_tick_is_empty() -> None:
    found = bucketed(tallied([organisms([1, 9])], ORGANISMS, 1), divided(TickRange(0, 9), 1, 5), ORGANISMS)
    assert found["population_mean"].to_pylist() == [2.0, None, None, None, 5.0]
    nothing = bucketed(tallied([], ORGANISMS, 1), divided(TickRange(0, 9), 1, 2), ORGANISMS)
    assert nothing["energy_max"].to_pylist() == [None, None]


def test_a_chart_has_mean_least_and_most_of_every_tick(series: Series) -> None:
    assert series.ticks(RUN) == TickRange(0, 299)
    found = series.chart(RUN, TickRange(0, 299), 3)
    assert found.exact
    assert found.table.to_pydict() == {
        "from_tick": [0, 100, 200],
        "to_tick": [99, 199, 299],
        "ticks": [100] * 3,
        "organism_data_ticks": [100] * 3,
        "population_mean": [3.0] * 3,
        "population_min": [1.0] * 3,
        "population_max": [5.0] * 3,
        "births_mean": [1.0] * 3,
        "births_min": [1.0] * 3,
        "births_max": [1.0] * 3,
        "energy_mean": [34.0] * 3,
        "energy_min": [10.0] * 3,
        "energy_max": [60.0] * 3,
        "deaths_mean": [0.76, 0.8, 0.8],
        "deaths_min": [0.0] * 3,
        "deaths_max": [4.0] * 3,
        "births_deaths_exact": [True] * 3,
    }
    part = series.chart(RUN, TickRange(150, 153), 240).table
    assert part["from_tick"].to_pylist() == part["to_tick"].to_pylist() == [150, 151, 152, 153]
    assert part["population_mean"].to_pylist() == [1.0, 2.0, 3.0, 4.0]


def test_of_too_many_rows_some_ticks_are_read_and_their_figures_are_right(
    series: Series, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    original = OpenTable.scan

    def counted(self: OpenTable, *arguments: object) -> Iterator[pa.RecordBatch]:
        for batch in original(self, *arguments):  # type: ignore[arg-type]
            read.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(OpenTable, "scan", counted)
    little = replace(ORGANISMS, most=100)
    found = series.chart(RUN, TickRange(0, 299), 2, [little])
    assert not found.exact
    assert found.table["population_min"].to_pylist() == [1.0, 1.0]
    assert found.table["population_max"].to_pylist() == [5.0, 5.0]
    assert found.table["organism_data_ticks"].to_pylist() < found.table["ticks"].to_pylist()
    assert found.table["deaths_max"].to_pylist() == [4.0, 4.0], "the tick before each is read as well"
    assert sum(read) < 900, "the file between the two was not read"


@pytest.mark.parametrize("points", [0, 1, 1001])
def test_as_many_points_as_a_chart_can_show(series: Series, points: int) -> None:
    with pytest.raises(InvalidOption, match="points"):
        series.chart(RUN, TickRange(0, 299), points)
