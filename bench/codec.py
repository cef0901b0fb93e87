"""Cells per second and core, each way: `python bench/codec.py [REAL_RUNS]`."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np

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


def report(name: str, cells: int, seconds: float) -> None:
    print(f"{name:<44} {cells / seconds / 1e6:6.1f} M cells/s")


def generated(ticks: int, cells: int) -> None:
    columns = world_in_motion(ticks, cells)
    total = ticks * cells
    encoded: list[EncodedTick] = encode_ticks(RUN, columns)
    size = sum(len(tick.data) for tick in encoded) // ticks
    report(f"encode, {size} bytes a tick", total, best(lambda: encode_ticks(RUN, columns)))
    with tempfile.TemporaryDirectory() as root:
        for compress in (False, True):
            storage = Storage(f"{root}/{compress}", compress=compress)
            file = storage.write_batch(RUN, encoded)
            seconds = best(lambda storage=storage, file=file: count_cells(storage, [file]))
            report(f"decode, {size} bytes a tick, {'zstd' if compress else 'plain'}", total, seconds)


def real(url: str) -> None:
    storage = Storage(url)
    for run in storage.runs():
        files = storage.batches(run).files
        cells = count_cells(storage, files)
        report(f"decode, real run {run[:17]}", cells, best(lambda files=files: count_cells(storage, files)))


if __name__ == "__main__":
    generated(ticks=100, cells=10_000)
    generated(ticks=1_000, cells=1_000)
    generated(ticks=50_000, cells=12)
    if len(sys.argv) > 1:
        real(sys.argv[1])
