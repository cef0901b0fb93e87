"""A producer as its own process, to be killed: `producing.py DIRECTORY RUN_ID TICKS`."""

from __future__ import annotations

import sys
from pathlib import Path

from ticklake import Database
from ticklake.services.base import Service
from ticklake.services.completion import CompletionService
from ticklake.services.metadata import MetadataPersistenceService
from ticklake.services.persistence import PersistenceOptions, PersistenceService
from ticklake.services.queue import TickQueue
from ticklake.services.simulation import SimulationService
from ticklake.simulation import SimulationSettings
from ticklake.storage.files import Storage


def main(directory: Path, run_id: str, ticks: int) -> None:
    queue, storage = TickQueue(max_ticks=50), Storage(str(directory / "storage"))
    options = PersistenceOptions(max_batch_size=10, batch_timeout_seconds=0.05)
    with Database(f"sqlite:///{directory / 'db'}") as database:
        run = database.run(run_id)
        simulation = SimulationService(run_id, SimulationSettings(shape=(40, 50), organisms=20), queue, ticks)
        services: list[Service] = [
            MetadataPersistenceService(run, storage, simulation.metadata),
            PersistenceService(run, storage, queue, options, name="persistence-service-1"),
            PersistenceService(run, storage, queue, options, name="persistence-service-2"),
            CompletionService(run, storage, queue),
            simulation,
        ]
        for service in services:
            service.start()
        for service in services:
            service.join()
        sys.exit(any(service.error for service in services))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
