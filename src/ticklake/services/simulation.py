"""The simulation as a producer: steps the world and puts its ticks into the tick queue."""

from __future__ import annotations

import time
from collections.abc import Callable

from ticklake.services.base import Service
from ticklake.services.errors import QueueClosed
from ticklake.services.queue import TickQueue
from ticklake.simulation import Ecosystem, SimulationSettings
from ticklake.storage import TickColumns, encode_ticks

_CELLS_PER_CALL = 100_000


class SimulationService(Service):
    """Simulates a world from tick 0 for `ticks` ticks or until it is stopped. Then its run has ended.

    A tick is accepted once it is in the queue. A full queue makes the simulation wait.
    """

    def __init__(
        self,
        run_id: str,
        settings: SimulationSettings,
        queue: TickQueue,
        ticks: int | None = None,
        *,
        name: str = "simulation",
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(name)
        self._run_id = run_id
        self._queue = queue
        self._ticks = ticks
        self._clock = clock
        self._world = Ecosystem(settings)
        self._group: list[TickColumns] = []
        self.metadata = self._world.metadata(run_id, self._now_ms())
        self.monitor.gauge("tick", lambda: self._world.tick)
        self.monitor.gauge("organisms", lambda: len(self._world.organisms))

    def start(self) -> None:
        """Starts the simulation. Raises `QueueClosed` if its run has ended."""
        if self._queue.closed:
            raise QueueClosed(last_tick=self._queue.last_tick)
        super().start()

    def run(self) -> None:
        while self._grow_group() and self._emit():
            pass
        self._queue.close()

    def wake(self) -> None:
        self._queue.wake()

    def _grow_group(self) -> bool:
        """Collects a group of sampled ticks, which encode faster together. Returns False if there are no more."""
        while self.proceed() and (self._ticks is None or self._world.tick < self._ticks):
            if sum(len(tick.cells) for tick in self._group) >= _CELLS_PER_CALL:
                return True
            if self._world.tick % self._world.settings.sampling_interval == 0:
                self._group.append(self._world.columns(self._now_ms()))
            self._world.step()
        return bool(self._group)

    def _emit(self) -> bool:
        """Puts the group into the queue tick by tick, so that a restart continues with the rest of it."""
        for encoded in encode_ticks(self._run_id, self._group):
            while not self._queue.put(encoded, unless=self.interrupted):
                if not self.proceed():
                    return False
            self.monitor.counter("ticks_produced").add()
            self.monitor.counter("cells_produced").add(len(self._group.pop(0).cells))
            self.monitor.window("ticks_produced_per_sec").add()
        return True

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)
