"""A producer for your own simulation: it writes, announces and ends a run."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from ticklake.contracts import SimulationMetadata
from ticklake.services.base import Service, State
from ticklake.services.completion import CompletionService
from ticklake.services.metadata import MetadataPersistenceService
from ticklake.services.persistence import PersistenceOptions, PersistenceService
from ticklake.services.queue import TickQueue
from ticklake.storage import Storage, TickColumns, encode_ticks
from ticklake.topics import Database

_POLL_SECONDS = 0.2


class Producer:
    """One run, open during the `with` block.

    Leaving the block waits until every tick is durable and announced, then records the end of the run. If an error
    leaves the block, emitted ticks are written but the end is not recorded.
    """

    def __init__(
        self,
        database: Database,
        storage: Storage,
        metadata: SimulationMetadata,
        options: PersistenceOptions | None = None,
        queue: TickQueue | None = None,
    ) -> None:
        run = database.run(metadata.simulation_run_id)
        self._run_id = run.id
        self._queue = queue or TickQueue()
        self._persistence = PersistenceService(run, storage, self._queue, options)
        self._completion = CompletionService(run, storage, self._queue)
        self.services: tuple[Service, ...] = (
            MetadataPersistenceService(run, storage, metadata),
            self._persistence,
            self._completion,
        )

    def emit(self, *ticks: TickColumns) -> None:
        """Adds the next ticks; waits while the queue is full. Several ticks in one call are encoded faster."""
        for tick in encode_ticks(self._run_id, ticks):
            self._raise_error()
            while not self._queue.put(tick, timeout=_POLL_SECONDS):
                self._raise_error()

    def __enter__(self) -> Self:
        for service in self.services:
            service.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._queue.close()
            self._persistence.join()
        for service in self.services:
            service.stop()
        if error is None:
            self._raise_error()

    def _raise_error(self) -> None:
        for service in self.services:
            if service.state is State.ERROR and service.error is not None:
                raise service.error
