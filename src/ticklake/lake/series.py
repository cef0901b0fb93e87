"""Figures of a run over its ticks, in as many buckets as a chart has room for; what is read of it is bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ticklake.errors import InvalidOption
from ticklake.lake.frames import Frames
from ticklake.ticks import TickRange

Numbers = npt.NDArray[np.int64]
TICK = "tick_number"
GROUP_ROWS = 2 * 128 * 1024
"""Row groups are read whole, and a tick may lie across two."""

MOST_POINTS = 1_000


@dataclass(frozen=True)
class Source:
    """What one table tells: sums over the rows of each tick, by name.

    `most` is how many rows a chart may read of it, about a second's work: beyond that, some ticks stand for all.
    """

    table: str
    most: int
    columns: tuple[str, ...]
    figures: tuple[str, ...]
    counted: Callable[[pa.RecordBatch, int], list[npt.NDArray[np.generic]]]


class Tally(NamedTuple):
    """Figures tick by tick, in the order of the ticks: one row of `sums` a figure."""

    ticks: Numbers
    sums: Numbers


def _organisms(rows: pa.RecordBatch, step: int) -> list[npt.NDArray[np.generic]]:
    dead = rows["is_dead"].fill_null(False).to_numpy(zero_copy_only=False)
    # A run that samples every step-th tick sees at each the births since the one before.
    born = rows["birth_tick"].fill_null(-step).to_numpy() > rows[TICK].to_numpy() - step
    return [~dead, born, dead, rows["energy"].fill_null(0).to_numpy()]


def _cells(rows: pa.RecordBatch, _step: int) -> list[npt.NDArray[np.generic]]:
    return [np.ones(rows.num_rows, np.int64)]


SOURCES = (
    Source(
        "organism_data",
        20_000_000,
        (TICK, "energy", "birth_tick", "is_dead"),
        ("population", "births", "deaths", "energy"),
        _organisms,
    ),
    Source("environment_data", 50_000_000, (TICK,), ("occupied_cells",), _cells),
)


class Buckets(NamedTuple):
    """Ticks in parts of about the same length, each from its edge to the tick before the next one's."""

    edges: Numbers
    step: int

    def every(self) -> TickRange:
        return TickRange(int(self.edges[0]), int(self.edges[-1]) - self.step)

    def some(self, count: int) -> Numbers:
        """So many ticks from the middle of each, or all that it has."""
        lengths = np.diff(self.edges) // self.step
        counts = np.minimum(lengths, count)
        firsts = self.edges[:-1] + (lengths - counts) // 2 * self.step
        places: Numbers = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.repeat(firsts, counts) + places * self.step


def divided(ticks: TickRange, step: int, parts: int) -> Buckets:
    """Fewer parts than asked for where there are fewer ticks."""
    samples = ticks.count(step)
    parts = max(1, min(parts, samples))
    return Buckets(ticks.start + np.arange(parts + 1, dtype=np.int64) * samples // parts * step, step)


def affordable(parts: int, samples: int, rows_a_tick: float, most: int) -> tuple[int, int]:
    """How many buckets, and how many ticks of each may be read: all of them, or as many as `most` rows allow."""
    if samples * rows_a_tick <= most:
        return parts, samples
    parts = max(2, min(parts, int(most // max(rows_a_tick, GROUP_ROWS))))
    return parts, max(1, int(most / parts // max(1.0, rows_a_tick)))


def tallied(batches: Iterable[pa.RecordBatch], source: Source, step: int) -> Tally:
    """Sums a tick. Rows of a tick mostly follow each other, so each batch shrinks to a few numbers at once."""
    ticks, sums = [np.empty(0, np.int64)], [np.empty((len(source.figures), 0), np.int64)]
    for batch in batches:
        if not batch.num_rows:
            continue
        numbers = batch[TICK].to_numpy()
        starts = np.flatnonzero(np.concatenate(([True], numbers[1:] != numbers[:-1])))
        ticks.append(numbers[starts])
        sums.append(np.stack([np.add.reduceat(one, starts, dtype=np.int64) for one in source.counted(batch, step)]))
    found, place = np.unique(np.concatenate(ticks), return_inverse=True)
    total = np.zeros((len(source.figures), len(found)), np.int64)
    for figure, part in zip(total, np.concatenate(sums, axis=1), strict=True):
        np.add.at(figure, place, part)
    return Tally(found, total)


def bucketed(tally: Tally, buckets: Buckets, names: Sequence[str]) -> pa.Table:
    """Mean, least and most of each figure a bucket; null where it has no tick."""
    places = np.searchsorted(tally.ticks, buckets.edges)
    counts = np.diff(places)
    filled = counts > 0
    columns: dict[str, pa.Array] = {}
    for name, values in zip(names, tally.sums[:, : places[-1]], strict=True):
        for kind, reduce in (("mean", np.add), ("min", np.minimum), ("max", np.maximum)):
            found = np.zeros(len(counts), np.float64)
            if filled.any():
                found[filled] = reduce.reduceat(values, places[:-1][filled])
            found = found / np.maximum(counts, 1) if kind == "mean" else found
            columns[f"{name}_{kind}"] = pa.array(found, mask=~filled)
    return pa.table(columns)


@dataclass(frozen=True)
class Charted:
    """Buckets of some ticks; `exact` tells whether every tick was read."""

    ticks: TickRange
    step: int
    exact: bool
    table: pa.Table


class Series:
    """The figures of the runs of a lake."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames

    def ticks(self, run_id: str) -> TickRange | None:
        """From the first to the last tick that any of the tables has."""
        found = [self._frames.facts(run_id, source.table).ticks for source in self._sources(run_id)]
        known = [ticks for ticks in found if ticks is not None]
        return TickRange(min(one.start for one in known), max(one.end for one in known)) if known else None

    def chart(self, run_id: str, ticks: TickRange, points: int, sources: Sequence[Source] = SOURCES) -> Charted:
        """One row a bucket: `from_tick`, `to_tick`, and what the tables tell of the ticks between."""
        if not 2 <= points <= MOST_POINTS:
            raise InvalidOption(option="points", value=points, allowed=f"2 to {MOST_POINTS:,}")
        world = self._frames.world(run_id)
        step = world.sampling_interval if world is not None else 1
        here, samples = self._sources(run_id, sources), ticks.count(step)
        rates = [self._frames.rows(run_id, source.table, ticks) / samples for source in here]
        plans = [affordable(points, samples, rate, source.most) for source, rate in zip(here, rates, strict=True)]
        buckets = divided(ticks, step, min((parts for parts, _ in plans), default=points))
        columns = {"from_tick": pa.array(buckets.edges[:-1]), "to_tick": pa.array(buckets.edges[1:] - step)}
        for source, (_, reads) in zip(here, plans, strict=True):
            part = self._part(run_id, source, buckets, reads if reads < samples else None)
            columns |= {name: part[name] for name in part.column_names}
        exact = all(reads >= samples for _, reads in plans)
        return Charted(buckets.every(), step, exact, pa.table(columns))

    def _part(self, run_id: str, source: Source, buckets: Buckets, reads: int | None) -> pa.Table:
        some = None if reads is None else buckets.some(reads)

        def wanted(ticks: TickRange) -> bool:
            return some is None or bool(np.searchsorted(some, ticks.start) < np.searchsorted(some, ticks.end, "right"))

        batches = self._frames.scan(run_id, source.table, source.columns, buckets.every(), wanted)
        tally = tallied(batches, source, buckets.step)
        if some is not None:
            known = np.isin(tally.ticks, some)
            tally = Tally(tally.ticks[known], tally.sums[:, known])
        return bucketed(tally, buckets, source.figures)

    def _sources(self, run_id: str, sources: Sequence[Source] = SOURCES) -> list[Source]:
        tables = self._frames.tables(run_id)
        return [source for source in sources if source.table in tables]
