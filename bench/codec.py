"""Cells per second and core, each way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from bench.results import Figure, Section

from ticklake.storage.codec import CellColumns, EncodedTick, OrganismColumns, TickColumns, encode_ticks, read_ticks
from ticklake.storage.files import BatchFile, Storage

RUN = "20251014-143025-550e8400"


def world_in_motion(ticks: int, cells: int) -> list[TickColumns]:
    """Cells in hash order, of which a few change from tick to tick, as in real runs."""
    rng = np.random.default_rng(1)
    places = rng.permutation(1 << 20)[:cells].astype(np.int32)
    kinds = (rng.integers(0, 8, cells) << 16).astype(np.int32)
    values = rng.integers(-300, 300, cells).astype(np.int32)
    owners = rng.integers(0, 30, cells).astype(np.int32)
    made = []
    for number in range(ticks):
        changed = rng.integers(0, cells, cells // 30 + 1)
        values = values.copy()
        values[changed] += 1
        made.append(TickColumns(number, number, CellColumns(places, kinds, values, owners), OrganismColumns()))
    return made


def best(work: Callable[[], object], times: int = 5) -> float:
    """Seconds of this core's time that the fastest of a few rounds took."""
    spent = []
    for _ in range(times):
        start = time.process_time()
        work()
        spent.append(time.process_time() - start)
    return min(spent)


def count_cells(storage: Storage, files: list[BatchFile]) -> int:
    batches = (batch for file in files for batch in read_ticks(storage, file, fields=["cells"]))
    return sum(len(batch.column("cells").values) for batch in batches)


def measure(directory: Path) -> Section:
    worlds = {"100 ticks of 10,000 cells": (100, 10_000), "50,000 ticks of 12 cells": (50_000, 12)}
    figures = [figure for name, (ticks, cells) in worlds.items() for figure in both_ways(directory, name, ticks, cells)]
    return Section("Codec", "Ticks to bytes and batch files to Arrow, on one core (its CPU time), best of 5.", figures)


def both_ways(directory: Path, name: str, ticks: int, cells: int) -> Iterator[Figure]:
    columns = world_in_motion(ticks, cells)
    total = ticks * cells
    encoded: list[EncodedTick] = encode_ticks(RUN, columns)
    yield Figure(f"encode, {name}", total / best(lambda: encode_ticks(RUN, columns)), "cells/s")
    for compress in (False, True):
        storage = Storage(directory / f"{ticks}-{compress}", compress=compress)
        file = storage.write_batch(RUN, encoded)
        seconds = best(lambda storage=storage, file=file: count_cells(storage, [file]))
        yield Figure(f"decode, {name}, {'zstd' if compress else 'plain'}", total / seconds, "cells/s")
