"""Compaction, or indexing without a JVM, in a process of its own: `compaction_child.py compact|index|vacuum ROOT RUN`.

`compact` goes on until its standard input ends; told `once`, it compacts what is there and ends.
"""

from __future__ import annotations

import select
import sys
from pathlib import Path
from typing import Any

from ticklake.indexers.base import IndexerOptions, IndexerResources
from ticklake.indexers.batches import StoredBatches
from ticklake.indexers.builtin.organism import OrganismIndexer
from ticklake.lake.lake import Lake
from ticklake.lake.upkeep.compaction import BY_HAND, Compaction, Policy
from ticklake.lake.upkeep.vacuum import Vacuum
from ticklake.storage.files import Storage


def compact(lake: Lake, run_id: str, policy: Policy) -> None:
    assert OrganismIndexer.table is not None
    for _ in Compaction(lake.ledger(run_id, OrganismIndexer.table), policy).steps():
        pass


def vacuum(lake: Lake, run_id: str) -> None:
    """Of everything that is in no commit or not needed now, however young."""
    it = Vacuum(lake.location(run_id, "organism_data"), run_id, 0, force=True)
    for _ in it.remove(it.find()):
        pass


def index(root: Path, lake: Lake, run_id: str) -> None:
    from in_process import InProcess

    spark: Any = InProcess()
    storage = Storage(root / "storage")
    resources = IndexerResources(storage, lake, spark=lambda: spark)
    options = IndexerOptions(run_id, until_caught_up=True, insert_batch_size=7)
    OrganismIndexer(
        "organism-indexer", resources, options, lambda run, monitor: StoredBatches(storage, run, monitor)
    ).run()


def main(role: str, root: Path, run_id: str) -> None:
    lake = Lake(root / "lake")
    if role == "index":
        index(root, lake, run_id)
    elif role == "once":
        compact(lake, run_id, BY_HAND)
    else:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        told = False
        while not told:  # and once more after it was told to end
            told = bool(select.select([sys.stdin], [], [], 0.02)[0])
            compact(lake, run_id, Policy(fan_in=3, growth=2))
            if role == "vacuum":
                vacuum(lake, run_id)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
