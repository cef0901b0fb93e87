"""Figures of a run over its ticks, in buckets for a chart. The number of rows read is limited."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ticklake.checks.numbers import InvalidOption
from ticklake.lake.empty import ticks_of
from ticklake.lake.read.frames import Frames, OpenTable
from ticklake.ticks import TickRange, on_grid

Numbers = npt.NDArray[np.int64]
TICK = "tick_number"
NO_TICKS: Numbers = np.empty(0, np.int64)
IDS = 2**32
"""Ids of organisms have 32 bits. With the number of a tick above them, organism and tick are one number."""

NEVER = np.iinfo(np.int64).min
GROUP_ROWS = 2 * 128 * 1024
"""Row groups are read whole, and a tick may be in two of them."""

MOST_POINTS = 1_000


@dataclass(frozen=True)
class Source:
    """The figures from one table: sums over the rows of each tick, by name.

    A chart reads at most `most` rows, which takes about a second. If there are more, it reads a sample of the ticks.
    """

    table: str
    most: int
    columns: tuple[str, ...]
    figures: tuple[str, ...]
    counted: Callable[[pa.RecordBatch, int], list[npt.NDArray[np.generic]]]
    deaths: bool = False
    """True if its rows are organisms. Then its last figure is `deaths`: organisms that are gone at the next tick."""


class Tally(NamedTuple):
    """Figures of each tick, ordered by tick: one row of `sums` for each figure. `known` marks valid values."""

    ticks: Numbers
    sums: Numbers
    known: npt.NDArray[np.bool_]


def _organisms(rows: pa.RecordBatch, step: int) -> list[npt.NDArray[np.generic]]:
    dead = rows["is_dead"].fill_null(False).to_numpy(zero_copy_only=False)
    # A sampled tick shows all organisms born since the sample before. A founder has no parent.
    new = rows["birth_tick"].fill_null(NEVER).to_numpy() > rows[TICK].to_numpy() - step
    child = rows["parent_id"].is_valid().to_numpy(zero_copy_only=False)
    return [~dead, new & child, np.where(dead, 0, rows["energy"].fill_null(0).to_numpy()), new & dead]


def _cells(rows: pa.RecordBatch, _step: int) -> list[npt.NDArray[np.generic]]:
    return [np.ones(rows.num_rows, np.int64)]


SOURCES = (
    Source(
        "organism_data",
        10_000_000,
        (TICK, "organism_id", "energy", "birth_tick", "parent_id", "is_dead"),
        ("population", "births", "energy", "deaths"),
        _organisms,
        deaths=True,
    ),
    Source("environment_data", 50_000_000, (TICK,), ("occupied_cells",), _cells),
)


class Lives:
    """Records who was alive at which tick, to count deaths. Only the ends of each life are kept."""

    def __init__(self, step: int) -> None:
        self._step = step
        self._base: int | None = None
        self._firsts, self._lasts = [NO_TICKS], [NO_TICKS]

    def add(self, ticks: Numbers, ids: Numbers) -> None:
        """Adds the living organisms of some rows, in any order."""
        if not len(ticks):
            return
        self._base = int(ticks[0]) // self._step * self._step if self._base is None else self._base
        numbered = self._numbered(ticks)
        keys = (numbered * IDS + ids + IDS // 2)[self.counts(ticks)]
        if not (keys[1:] > keys[:-1]).all():
            keys = np.unique(keys)  # our tables are already in order
        next_place = np.searchsorted(keys, keys + IDS)
        goes_on = keys[np.minimum(next_place, len(keys) - 1)] == keys + IDS
        went_on = np.zeros(len(keys), np.bool_)
        went_on[next_place[goes_on]] = True
        self._firsts.append(keys[~went_on])
        self._lasts.append(keys[~goes_on])

    def vanished(self, ticks: Numbers) -> Numbers:
        """Returns for each tick the number of organisms that were alive only at the sampled tick before it."""
        # A life that ends in one batch of rows may continue in the next one.
        ended, begun = np.sort(np.concatenate(self._lasts)) + IDS, np.sort(np.concatenate(self._firsts))
        place = np.searchsorted(begun, ended)
        goes_on = begun[np.minimum(place, len(begun) - 1)] == ended if len(begun) else np.zeros(0, np.bool_)
        twice = np.concatenate((ended[1:] == ended[:-1], [False]))[: len(ended)]
        gone, wanted = ended[~goes_on & ~twice] // IDS, self._numbered(ticks)
        counts: Numbers = np.searchsorted(gone, wanted, "right") - np.searchsorted(gone, wanted, "left")
        return np.where(self.counts(ticks), counts, 0)

    def counts(self, ticks: Numbers) -> npt.NDArray[np.bool_]:
        """Returns which of these ticks are sampled, and close enough to the first for the numbering."""
        numbered = self._numbered(ticks)
        found: npt.NDArray[np.bool_] = np.abs(numbered) < IDS // 4
        found &= numbered * self._step + (self._base or 0) == ticks
        return found

    def _numbered(self, ticks: Numbers) -> Numbers:
        numbered: Numbers = (ticks - (self._base or 0)) // self._step
        return numbered


class Buckets(NamedTuple):
    """Ticks in parts of about equal length. Each part ends before the edge of the next one."""

    edges: Numbers
    step: int

    @property
    def lengths(self) -> Numbers:
        """The number of sampled ticks of each bucket."""
        return np.diff(self.edges) // self.step

    def every(self) -> TickRange:
        return TickRange(int(self.edges[0]), int(self.edges[-1]) - self.step)

    def held(self, ticks: Numbers) -> Numbers:
        """Returns for each bucket the number of these ascending ticks in it."""
        return np.diff(np.searchsorted(ticks, self.edges))

    def some(self, count: int) -> Numbers:
        """Returns up to `count` ticks from the middle of each bucket."""
        counts = np.minimum(self.lengths, count)
        firsts = self.edges[:-1] + (self.lengths - counts) // 2 * self.step
        places: Numbers = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.repeat(firsts, counts) + places * self.step


def divided(ticks: TickRange, step: int, parts: int) -> Buckets:
    """Divides ticks into `parts` buckets, or fewer if there are fewer ticks."""
    samples = ticks.count(step)
    parts = min(parts, samples)
    if not parts:
        return Buckets(np.array([ticks.start], np.int64), step)
    return Buckets(ticks.start + np.arange(parts + 1, dtype=np.int64) * samples // parts * step, step)


def affordable(parts: int, samples: int, rows_a_tick: float, most: int) -> tuple[int, int]:
    """Returns the number of buckets, and the number of ticks to read from each within a limit of `most` rows."""
    if samples * rows_a_tick <= most:
        return parts, samples
    parts = max(2, min(parts, int(most // max(rows_a_tick, GROUP_ROWS))))
    return parts, max(1, int(most / parts // max(1.0, rows_a_tick)))


def tallied(batches: Iterable[pa.RecordBatch], source: Source, step: int, empty: Numbers = NO_TICKS) -> Tally:
    """Sums the figures of each tick. `empty` ticks count 0. Deaths need the tick before.

    Rows of a tick are mostly adjacent, so each batch is first reduced to a few numbers.
    """
    ticks, sums = [np.empty(0, np.int64)], [np.empty((len(source.figures), 0), np.int64)]
    lives = Lives(step)
    for rows in batches:
        batch = rows.filter(rows[TICK].is_valid()) if rows[TICK].null_count else rows
        if not batch.num_rows:
            continue
        numbers = ticks_of(batch[TICK])
        starts = np.flatnonzero(np.concatenate(([True], numbers[1:] != numbers[:-1])))
        counted = source.counted(batch, step)
        ticks.append(numbers[starts])
        sums.append(np.stack([np.add.reduceat(one, starts, dtype=np.int64) for one in counted]))
        if source.deaths:
            living = counted[0].astype(np.bool_)
            lives.add(numbers[living], batch["organism_id"].to_numpy().astype(np.int64)[living])
    found, place = np.unique(np.concatenate([*ticks, empty]), return_inverse=True)
    total = np.zeros((len(source.figures), len(found)), np.int64)
    for figure, part in zip(total, np.concatenate(sums, axis=1), strict=True):
        np.add.at(figure, place[: len(part)], part)
    known = np.ones(total.shape, np.bool_)
    if source.deaths:
        total[-1] += lives.vanished(found)
        known[-1] = (np.isin(found - step, found) | (found < step)) & lives.counts(found)
    return Tally(found, total, known)


def bucketed(tally: Tally, buckets: Buckets, source: Source) -> pa.Table:
    """Returns mean, minimum and maximum of each figure for each bucket, null if it has no tick."""
    columns = {f"{source.table}_ticks": pa.array(buckets.held(tally.ticks))}
    for name, values, known in zip(source.figures, tally.sums, tally.known, strict=True):
        columns |= _reduced(name, tally.ticks[known], values[known], buckets)
    if source.deaths:
        # Organisms that are born and die between two sampled ticks, or at a missing tick, are not counted.
        whole = buckets.held(tally.ticks[tally.known[-1]]) == buckets.lengths
        columns["births_deaths_exact"] = pa.array(whole & (buckets.step == 1))
    return pa.table(columns)


def _reduced(name: str, ticks: Numbers, values: Numbers, buckets: Buckets) -> dict[str, pa.Array]:
    places = np.searchsorted(ticks, buckets.edges)
    counts = np.diff(places)
    filled = counts > 0
    columns: dict[str, pa.Array] = {}
    for kind, reduce in (("mean", np.add), ("min", np.minimum), ("max", np.maximum)):
        found = np.zeros(len(counts), np.float64)
        if filled.any():
            found[filled] = reduce.reduceat(values[: places[-1]], places[:-1][filled])
        found = found / np.maximum(counts, 1) if kind == "mean" else found
        columns[f"{name}_{kind}"] = pa.array(found, mask=~filled)
    return columns


@dataclass(frozen=True)
class Charted:
    """Buckets of some ticks. `exact` is True if every tick was read."""

    ticks: TickRange
    step: int
    exact: bool
    table: pa.Table


class Series:
    """Figures of the runs of a lake."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames

    def ticks(self, run_id: str) -> TickRange | None:
        """Returns the range of sampled ticks that any of the tables has, or None."""
        found = [self._frames.facts(run_id, source.table).ticks for source in self._sources(run_id)]
        known = [ticks for ticks in found if ticks is not None]
        whole = TickRange(min((one.start for one in known), default=0), max((one.end for one in known), default=-1))
        return on_grid(whole, self.step(run_id)) or None

    def step(self, run_id: str) -> int:
        world = self._frames.world(run_id)
        return world.sampling_interval if world is not None else 1

    def chart(self, run_id: str, ticks: TickRange, points: int, sources: Sequence[Source] = SOURCES) -> Charted:
        """Returns one row for each bucket: `from_tick`, `to_tick`, the number of ticks, and the figures.

        A range without a sampled tick has no bucket.
        """
        if not 2 <= points <= MOST_POINTS:
            raise InvalidOption(option="points", value=points, allowed=f"2 to {MOST_POINTS:,}")
        step, here = self.step(run_id), self._sources(run_id, sources)
        asked, ticks = ticks, on_grid(ticks, step)
        samples = ticks.count(step)
        rates = [self._rows(run_id, source, ticks) / max(1, samples) for source in here]
        plans = [affordable(points, samples, rate, source.most) for source, rate in zip(here, rates, strict=True)]
        buckets = divided(ticks, step, min((parts for parts, _ in plans), default=points))
        columns = {
            "from_tick": pa.array(buckets.edges[:-1]),
            "to_tick": pa.array(buckets.edges[1:] - step),
            "ticks": pa.array(buckets.lengths),
        }
        for source, (_, reads) in zip(here, plans, strict=True):
            part = self._part(run_id, source, buckets, reads if reads < samples else None)
            columns |= {name: part[name] for name in part.column_names}
        exact = all(reads >= samples for _, reads in plans)
        return Charted(buckets.every() or asked, step, exact, pa.table(columns))

    def _part(self, run_id: str, source: Source, buckets: Buckets, reads: int | None) -> pa.Table:
        shown, step = buckets.every(), buckets.step
        some = None if reads is None else buckets.some(reads)
        before = step if source.deaths else 0
        looked_at = None if some is None else np.union1d(some, some - before)

        def wanted(ticks: TickRange) -> bool:
            return looked_at is None or bool(
                np.searchsorted(looked_at, ticks.start) < np.searchsorted(looked_at, ticks.end, "right")
            )

        if not shown:
            return bucketed(tallied([], source, step), buckets, source)
        span = TickRange(shown.start - before, shown.end)

        def tally_of(table: OpenTable) -> Tally:
            return tallied(table.scan(source.columns, span, wanted), source, step, table.empty(span))

        tally = self._frames.reading(run_id, source.table, tally_of)
        kept = (tally.ticks >= shown.start) & (tally.ticks <= shown.end) & (tally.ticks % step == 0)
        kept &= True if some is None else np.isin(tally.ticks, some)
        return bucketed(Tally(tally.ticks[kept], tally.sums[:, kept], tally.known[:, kept]), buckets, source)

    def _rows(self, run_id: str, source: Source, ticks: TickRange) -> float:
        return self._frames.reading(run_id, source.table, lambda table: table.rows(ticks))

    def _sources(self, run_id: str, sources: Sequence[Source] = SOURCES) -> list[Source]:
        tables = self._frames.tables(run_id)
        return [source for source in sources if source.table in tables]
