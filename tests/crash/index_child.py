"""A real indexer in a process of its own, to be killed: `index_child.py ROOT RUN TABLE [INSERT_BATCH_SIZE]`."""

from __future__ import annotations

import sys
from pathlib import Path

from ticklake.indexers.base import IndexerOptions, IndexerResources
from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.indexers.builtin.organism import OrganismIndexer
from ticklake.lake.lake import Lake
from ticklake.lake.session.session import open_session
from ticklake.storage.files import Storage
from ticklake.topics import Database

KINDS = {"environment_data": EnvironmentIndexer, "organism_data": OrganismIndexer}


def main(root: Path, run_id: str, table: str, insert_batch_size: int) -> None:
    with Database(f"sqlite:///{root / 'database'}") as database:
        resources = IndexerResources(
            Storage(root / "storage"), Lake(root / "lake"), database, spark=lambda: open_session("local[1]")
        )
        options = IndexerOptions(
            run_id, until_caught_up=True, claim_timeout=5, insert_batch_size=insert_batch_size, max_delivery_attempts=99
        )
        KINDS[table](table, resources, options).run()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))
