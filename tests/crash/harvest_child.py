"""The processes of `harvest.py`: indexers that can be held at a point, and `ticklake index`."""

from __future__ import annotations

import errno
import os
import random
import signal
import time
from pathlib import Path
from typing import Any, NamedTuple

from crew import wait
from in_process import InProcess

from ticklake import Database, faults
from ticklake.indexers.base import IndexerOptions, IndexerResources
from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.indexers.finished_run import FinishedRun
from ticklake.indexers.shared_runs import Coordinated
from ticklake.lake.lake import Lake
from ticklake.storage.files import Storage

GROUP, LEASE, GAP_MS, ATTEMPTS = "environment-indexer", 2.0, 1500, 2
HELD_AT_MOST = 60.0


class Part(NamedTuple):
    root: Path
    lake: str
    url: str
    run_id: str
    shared: bool
    held: str = ""
    links: bool = True


def index(part: Part) -> None:
    """One indexer, until it is told to end. It is held at the point `held`."""
    if part.held:
        take_time(part.held, part.root)
    if not part.links:
        forbid_links(part.root)
    options = IndexerOptions(
        part.run_id, insert_batch_size=30, flush_timeout_ms=100, claim_timeout=LEASE, poll_interval_ms=50,
        gap_warning_timeout_ms=GAP_MS, max_delivery_attempts=ATTEMPTS,
    )  # fmt: skip
    spark: Any = InProcess()
    with Database(part.url) as database:
        resources = IndexerResources(
            Storage(part.root / "storage"), Lake(part.root / part.lake), database, spark=lambda: spark
        )
        source = (Coordinated(database, resources, EnvironmentIndexer, options),) if part.shared else ()
        indexer = EnvironmentIndexer(GROUP, resources, options, *source)
        signal.signal(signal.SIGTERM, lambda *_: indexer.stop(0))
        indexer.start()
        while not indexer.join(0.2):
            pass
        if indexer.error is not None:
            raise indexer.error


def index_again(part: Part) -> None:
    """`ticklake index RUN`, as an operator would call it."""
    spark: Any = InProcess()
    resources = IndexerResources(Storage(part.root / "storage"), Lake(part.root / part.lake), spark=lambda: spark)
    # All in one commit: the fewer there are, the less their numbers say.
    work = FinishedRun(resources, part.run_id, [EnvironmentIndexer], insert_batch_size=100_000).start()
    while not work.wait(0.1):
        pass


def take_time(point: str, root: Path) -> None:
    """Whoever reaches this point leaves a mark and stays there until the file `go` is there."""
    reach = faults.reach

    def slowly(name: str) -> None:
        if name == point and not (root / "go").exists():
            (root / "held").touch()
            wait(HELD_AT_MOST, (root / "go").exists)
        reach(name)

    faults.reach = slowly


def forbid_links(root: Path) -> None:
    """As on some file systems of the network. Whoever publishes a commit waits a moment for another who does it too."""
    rename = os.rename

    def slow_rename(*arguments: Any, **options: Any) -> None:
        time.sleep(random.uniform(0.1, 0.3))
        rename(*arguments, **options)

    def no_link(_: str, name: str, **__: Any) -> None:
        if name.endswith(".json"):
            (root / f"publishing-{name}-{os.getpid()}").touch()
            wait(1.0, lambda: len([*root.glob(f"publishing-{name}-*")]) > 1)
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    os.link, os.rename = no_link, slow_rename
