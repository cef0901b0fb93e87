"""A real indexer that shares its work through a coordinator, in a process to be killed: `ROOT RUN DATABASE CLOCK`.

Its jobs run in this process instead of on a Spark of its own: four JVMs would be most of what the test measures.
CLOCK is a file with seconds that this process's clock is wrong by, or `-`.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pyarrow as pa


class InProcess(NamedTuple):
    """The part of a Spark session that a flush uses: one task after the other, here."""

    conf: Any = SimpleNamespace(get=lambda *_: "2")
    sparkContext: Any = SimpleNamespace(defaultParallelism=2, setLocalProperty=lambda *_: None)
    tasks: int = 0
    act: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]] | None = None

    def range(self, start: int, end: int, step: int, partitions: int) -> InProcess:
        return self._replace(tasks=end)

    def mapInArrow(self, act: Any, schema: str) -> InProcess:
        return self._replace(act=act)

    def collect(self) -> list[dict[str, Any]]:
        assert self.act is not None
        tasks = (pa.RecordBatch.from_pydict({"id": [number]}) for number in range(self.tasks))
        return [row for task in tasks for batch in self.act(iter([task])) for row in batch.to_pylist()]


def set_clock_wrong(by: Path) -> None:
    """Everything that asks this process for the time of day gets it wrong from now on."""
    right, right_ns = time.time, time.time_ns

    def seconds() -> int:
        return int(by.read_text() or 0)

    time.time = lambda: right() + seconds()
    time.time_ns = lambda: right_ns() + seconds() * 10**9


def main(root: Path, run_id: str, url: str, clock: str) -> None:
    if clock != "-":
        set_clock_wrong(Path(clock))
    from ticklake.indexers.base import IndexerOptions, IndexerResources
    from ticklake.indexers.coordinated import coordinated
    from ticklake.indexers.organism import OrganismIndexer
    from ticklake.lake.lake import Lake
    from ticklake.storage.files import Storage
    from ticklake.topics import Database

    options = IndexerOptions(
        run_id,
        insert_batch_size=60,
        flush_timeout_ms=200,
        claim_timeout=2,
        poll_interval_ms=50,
        gap_warning_timeout_ms=1500,
    )
    with Database(url) as database:
        spark: Any = InProcess()
        resources = IndexerResources(Storage(root / "storage"), Lake(root / "lake"), spark=lambda: spark)
        batches_of = coordinated(database, resources, OrganismIndexer, options)
        indexer = OrganismIndexer("organism-indexer", resources, options, batches_of)
        signal.signal(signal.SIGTERM, lambda *_: indexer.stop(0))
        indexer.start()
        while not indexer.join(1):
            pass
        if indexer.error is not None:
            raise indexer.error


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:5])
