"""The same command over runs of every size: what it holds of the memory, and whether it stays as fast."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from bench.processes import Peak
from bench.results import Figure, Section
from bench.runs import RUN_ID, produce

from ticklake.storage.files import Storage

MILLION = 1_000_000
COMMAND = "from ticklake.cli import main; main()"


class Indexed(NamedTuple):
    rows: int
    seconds: float
    mebibytes: float

    @property
    def rate(self) -> float:
        return self.rows / self.seconds


def measure(directory: Path, sizes: tuple[int, int, int, int] = (5, 20, 200, 500)) -> Section:
    storage, total = produce(directory, sizes[-1] * MILLION)
    small, medium, large, whole = (index(directory, storage, size * MILLION / total) for size in sizes)
    runs = dict(zip(sizes, (small, medium, large, whole), strict=True))
    return Section(
        "Indexing at any size",
        "`ticklake index` of `environment_data` in processes of their own, JVM, driver and workers together"
        " (proportional set size, sampled five times a second); flushes of 1,000 ticks, about 12 M cells. Rates are the"
        " command's own, without the start of Spark.",
        [
            *(Figure(f"{size} M cells", one.rate, "cells/s") for size, one in runs.items()),
            Figure(f"rate at {sizes[2]} M ÷ at {sizes[1]} M", large.rate / medium.rate, "times", at_least=0.9),
            *(Figure(f"peak memory, {size} M cells", one.mebibytes, "MiB", at_most=3072) for size, one in runs.items()),
            Figure(f"peak at {sizes[3]} M ÷ at {sizes[0]} M", whole.mebibytes / small.mebibytes, "times", at_most=1.1),
            Figure(f"peak at {sizes[3]} M ÷ at {sizes[1]} M", whole.mebibytes / medium.mebibytes, "times"),
        ],
    )


def index(directory: Path, storage: Storage, share: float) -> Indexed:
    """The first files of the run, so many that they hold this share of it."""
    files = list(storage.every_batch(RUN_ID))
    last = files[max(0, min(len(files), round(len(files) * share)) - 1)].ticks.end
    lake = directory / f"lake-{last}"
    options = ["--storage", storage.url, "--lake", str(lake), "--table", "environment_data", "--ticks", f"0:{last}"]
    command = [sys.executable, "-c", COMMAND, "index", RUN_ID, *options, "--master", "local[2]", "--json"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    with Peak(child.pid) as peak:
        told, _ = child.communicate()
    if child.returncode:
        raise RuntimeError(f"ticklake index failed: {told}")
    found = json.loads(told)
    return Indexed(found["tables"][0]["rows"], found["seconds"], peak.mebibytes)
