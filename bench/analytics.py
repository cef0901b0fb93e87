"""Analytics: what its tables cost, alone and beside the table of cells. No Spark: reading, and making the rows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from bench.results import Figure, Section

from ticklake.indexers.analytics import PER_TICK, CellStatsIndexer
from ticklake.indexers.batch import BatchIndexer
from ticklake.indexers.builtin import EnvironmentIndexer
from ticklake.lake.order import ordered
from ticklake.storage import (
    NO_PARENT,
    BatchFile,
    CellColumns,
    OrganismColumns,
    Storage,
    TickColumns,
    encode_ticks,
    read_ticks,
)
from ticklake.world import World

RUN = "20251014-143025-550e8400"
WORLD = World(RUN, (1024, 1024), (True, True), 1)
OF_ORGANISMS = tuple(kind for kind in PER_TICK if kind is not CellStatsIndexer)
ROUNDS = 3


def population(ticks: int, organisms: int, cells: int = 0) -> list[TickColumns]:
    """Ticks with this many organisms: a few are born, a few die, all move. And cells, if any."""
    rng = np.random.default_rng(1)
    ids = np.arange(1, organisms + 1, dtype=np.int32)
    born = np.zeros(organisms, np.int64)
    parents = np.full(organisms, NO_PARENT, np.int32)
    places = np.sort(rng.permutation(1 << 20)[:cells]).astype(np.int32)
    kinds = (rng.integers(0, 8, cells) << 16).astype(np.int32)
    made = []
    for tick in range(ticks):
        values = rng.integers(-300, 300, cells).astype(np.int32)
        change = max(1, organisms // 100)
        new = np.arange(ids[-1] + 1, ids[-1] + 1 + change, dtype=np.int32)
        parents = np.concatenate([parents[change:], rng.choice(ids[change:], change)])
        ids, born = np.concatenate([ids[change:], new]), np.concatenate([born[change:], np.full(change, tick)])
        who = OrganismColumns(
            organism_id=ids,
            parent_id=parents,
            birth_tick=born,
            energy=rng.integers(1, 10_000, organisms).astype(np.int32),
            position=rng.integers(0, 1024, (organisms, 2)).astype(np.int32),
            is_dead=rng.random(organisms) < 0.01,
            program_id=[f"program-{number % 7}" for number in ids.tolist()],
        )
        owners = rng.integers(0, 30, cells).astype(np.int32)
        made.append(TickColumns(tick, tick, CellColumns(places, kinds, values, owners), who))
    return made


def stored(directory: Path, name: str, ticks: list[TickColumns]) -> tuple[Storage, BatchFile]:
    storage = Storage(directory / name)
    return storage, storage.write_batch(RUN, encode_ticks(RUN, ticks))


def seconds(storage: Storage, file: BatchFile, kinds: Sequence[type[BatchIndexer]]) -> float:
    """The seconds of this core for one shared read and the rows of all tables, in order; the best of a few."""
    fields = tuple(dict.fromkeys(path for kind in kinds for path in kind.reads))
    spent = []
    for _ in range(ROUNDS):
        started = time.process_time()
        for batch in read_ticks(storage, file, fields=fields, world=WORLD):
            for kind in kinds:
                assert kind.table is not None
                ordered(kind.rows(batch, WORLD), kind.table.key)
        spent.append(time.process_time() - started)
    return min(spent)


def measure(directory: Path) -> Section:
    ticks, organisms, cells = 100, 10_000, 20_000
    alone = stored(directory, "organisms", population(ticks, organisms))
    both = stored(directory, "both", population(ticks, cells // 100, cells))
    rows = ticks * organisms
    rate = rows / seconds(*alone, OF_ORGANISMS)
    figures = [Figure("all tables of organisms, one read", rate, "organisms/s", at_least=500_000)]
    figures += [
        Figure(f"{kind.table.name} alone", rows / seconds(*alone, [kind]), "organisms/s")
        for kind in OF_ORGANISMS
        if kind.table
    ]
    rates = [ticks * cells / seconds(*both, [EnvironmentIndexer, *more]) for more in ((), OF_ORGANISMS, PER_TICK)]
    names = ("environment_data alone", "and all tables of organisms", "and cell_stats too")
    figures += [Figure(name, rate, "cells/s") for name, rate in zip(names, rates, strict=True)]
    return Section("Analytics", "Files to rows, on one core (its CPU time), without writing, best of 3.", figures)
