"""A real indexer that shares its work through a coordinator, in a process to be killed: `ROOT RUN DATABASE CLOCK`.

Its jobs run in this process instead of on a Spark of its own.
CLOCK is a file with seconds that this process's clock is wrong by, or `-`.
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from typing import Any

from in_process import InProcess


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
    from ticklake.indexers.builtin.organism import OrganismIndexer
    from ticklake.indexers.shared_runs import Coordinated
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
        batches_of = Coordinated(database, resources, OrganismIndexer, options)
        indexer = OrganismIndexer("organism-indexer", resources, options, batches_of)
        signal.signal(signal.SIGTERM, lambda *_: indexer.stop(0))
        indexer.start()
        while not indexer.join(1):
            pass
        if indexer.error is not None:
            raise indexer.error


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:5])
