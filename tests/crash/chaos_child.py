"""One process of a pipeline, to be tormented: see `Part`.

`produce` simulates, slowly, and writes with two persistence services, until it reads in `enough` which tick is the
last; begun again, it goes on a little before the end of what is stored, with the same ticks. `environment` and
`organism` index, their jobs in this process or on a Spark.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import struct
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from in_process import InProcess

from ticklake import Database, faults
from ticklake.indexers.base import IndexerOptions, IndexerResources
from ticklake.indexers.batches import TopicBatches
from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.indexers.builtin.metadata import MetadataIndexer
from ticklake.indexers.builtin.organism import OrganismIndexer
from ticklake.lake.lake import Lake
from ticklake.lake.ledger import Ledger
from ticklake.lake.session.session import open_session
from ticklake.services.completion import CompletionService
from ticklake.services.metadata import MetadataPersistenceService
from ticklake.services.persistence import PersistenceOptions, PersistenceService
from ticklake.services.queue import TickQueue
from ticklake.services.reconciliation import ReconciliationService
from ticklake.services.simulation import SimulationService
from ticklake.simulation import SimulationSettings
from ticklake.storage.files import Storage

# In this world there is life for seven thousand ticks: where it ends, a table gets no more rows.
WORLD, AHEAD = SimulationSettings((24, 24), organisms=20, seed=1), 25
PACE_SECONDS, PACE_TICKS, BATCH = 0.1, 5, 10
LEASE, STEADY_SECONDS = 1.0, 0.5
SMALL = {"spark.driver.memory": "512m"}


class Part(NamedTuple):
    """What a process is to do. Its clock jumps after a while by `clock` seconds; `bug` is planted, to be caught."""

    role: str
    root: Path
    run_id: str
    url: str
    bug: str = ""
    spark: bool = False
    fault: str = ""
    clock: float = 0.0

    @property
    def disk(self) -> Path:
        """For all that is to last: a full one takes no more, while the log beside it goes on."""
        return self.root / "disk"


def services(part: Part) -> list[Any]:
    database, storage = Database(part.url), Storage(part.disk / "storage")
    if part.role == "produce":
        return _producing(database.run(part.run_id), storage, part.root / "enough")
    if part.role == "reconcile":
        return [ReconciliationService(database, storage, 0.5, run_id=part.run_id)]
    return [_indexer(part, database, storage)]


def _producing(run: Any, storage: Any, enough: Path) -> list[Any]:
    class Slow(SimulationService):
        def _grow_group(self) -> bool:
            time.sleep(PACE_SECONDS)
            ticks = int(enough.read_text()) if enough.exists() else self._world.tick + PACE_TICKS
            while self.proceed() and self._world.tick < ticks and len(self._group) < PACE_TICKS:
                self._group.append(self._world.columns(0))
                self._world.step()
            return bool(self._group)

    queue = TickQueue(max_ticks=50)
    simulation = Slow(run.id, WORLD, queue, clock=lambda: 0.0)
    for _ in range(reached(storage, run.id) - AHEAD):
        simulation._world.step()
    options = PersistenceOptions(max_batch_size=BATCH, batch_timeout_seconds=0.5)
    return [
        MetadataPersistenceService(run, storage, simulation.metadata),
        PersistenceService(run, storage, queue, options, name="persistence-service-1"),
        PersistenceService(run, storage, queue, options, name="persistence-service-2"),
        CompletionService(run, storage, queue),
        simulation,
    ]


def reached(storage: Any, run_id: str) -> int:
    """The first tick that is not stored."""
    following = 0
    for file in storage.every_batch(run_id):
        if file.ticks.start <= following:
            following = max(following, file.ticks.end + 1)
    return following


def _indexer(part: Part, database: Any, storage: Any) -> Any:
    here: Any = InProcess()
    spark = partial(open_session, "local[1]", SMALL) if part.spark else lambda: here
    options = IndexerOptions(
        part.run_id, poll_interval_ms=100, insert_batch_size=30, flush_timeout_ms=200, claim_timeout=LEASE,
        max_delivery_attempts=1000, topic_poll_timeout_ms=120_000, max_poll_duration_ms=120_000,
    )  # fmt: skip
    resources = IndexerResources(storage, Lake(part.disk / "lake"), database, spark=spark)
    if (kind := part.role) == "metadata":
        return MetadataIndexer("metadata-indexer", resources, options)
    return {"environment": EnvironmentIndexer, "organism": OrganismIndexer}[kind](f"{kind}-indexer", resources, options)


def plant(bug: str) -> None:
    """What the harness has to notice."""
    if bug == "ack before commit":
        poll = TopicBatches.poll

        def hasty(self: Any, limit: int, timeout: float) -> Any:
            found = poll(self, limit, timeout)
            self._reader.ack_many([one.message for one in found])
            return found

        TopicBatches.poll = hasty  # type: ignore[method-assign]
    elif bug == "commit twice":
        present = Ledger.present

        def forgetful(self: Any, wanted: Any) -> Any:
            return present(self, [])

        Ledger.present = forgetful  # type: ignore[method-assign]


def die_with_parent() -> None:
    """A driver that is killed leaves nobody behind (Linux: PR_SET_PDEATHSIG)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def obey_permissions() -> None:
    """Root and who may mount are refused too what a file's mode forbids (Linux: all capabilities are given up)."""
    if sys.platform == "linux":
        header, nothing = struct.pack("Ii", 0x20080522, 0), bytes(24)
        if ctypes.CDLL(None).capset(header, nothing):
            raise OSError("no capability could be given up")


def jump(seconds: float) -> None:
    """This process's clock is right at first."""
    right, right_ns, begun = time.time, time.time_ns, time.monotonic()
    off = lambda: seconds if time.monotonic() - begun > STEADY_SECONDS else 0.0  # noqa: E731
    time.time = lambda: right() + off()
    time.time_ns = lambda: right_ns() + int(off() * 10**9)


def main(part: Part) -> None:
    die_with_parent()
    log = os.open(part.root / "log", os.O_WRONLY | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    logging.basicConfig(format="%(asctime)s %(process)d %(message)s", level=logging.WARNING)
    # Also for the Python workers of a Spark.
    os.environ |= {"TICKLAKE_FAULT_MARK": str(part.root / "mark"), "TICKLAKE_FAULT": part.fault}
    faults.arm(part.fault)
    if part.url.startswith("sqlite"):
        obey_permissions()  # the socket of a PostgreSQL may be another user's
    if part.clock:
        jump(part.clock)
    plant(part.bug)
    work(services(part))


def work(running: list[Any]) -> None:
    signal.signal(signal.SIGTERM, lambda *_: [service.stop(0) for service in running])
    for service in running:
        service.start()
    failed = lambda: any(service.error for service in running)  # noqa: E731
    while not failed() and not all(service.join(0.1) for service in running):
        pass
    if failed():
        os._exit(1)  # as no supervisor is here: whoever lets this live begins it again, with all its services
