"""A real indexer of a consumer group, to be killed: `ROOT RUN DATABASE FLUSH_TIMEOUT_MS INSERT_BATCH_SIZE`.

Its jobs run in this process instead of on a Spark of its own. It writes a line when it is there to take messages, and
how many it has taken over from the dead when it is told to end.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

from in_process import InProcess

from ticklake.indexers.base import IndexerOptions, IndexerResources
from ticklake.indexers.builtin.organism import OrganismIndexer
from ticklake.lake.lake import Lake
from ticklake.storage.files import Storage
from ticklake.topics import Database

CLAIM_TIMEOUT = 3.0


def say(what: object) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def main(root: Path, run_id: str, url: str, flush_timeout_ms: int, insert_batch_size: int) -> None:
    options = IndexerOptions(
        run_id,
        insert_batch_size=insert_batch_size,
        flush_timeout_ms=flush_timeout_ms,
        claim_timeout=CLAIM_TIMEOUT,
        max_delivery_attempts=99,
    )
    with Database(url) as database:
        spark: Any = InProcess()
        resources = IndexerResources(Storage(root / "storage"), Lake(root / "lake"), database, spark=lambda: spark)
        indexer = OrganismIndexer("organism-indexer", resources, options)
        signal.signal(signal.SIGTERM, lambda *_: indexer.stop(0))
        indexer.start()
        while "batches_buffered" not in indexer.monitor.gauges and not indexer.join(0.01):
            pass
        say("ready")
        while not indexer.join(1):
            pass
        if indexer.error is not None:
            raise indexer.error
        say(database.run(run_id).monitor.counter("stuck_messages_reassigned").value)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:4], *map(int, sys.argv[4:6]))
