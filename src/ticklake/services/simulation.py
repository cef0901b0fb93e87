"""The simulation as a producer: it steps the world and puts what it sees into the tick queue."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from ticklake.services.base import Service
from ticklake.services.queue import TickQueue
from ticklake.simulation import Ecosystem, SimulationSettings
from ticklake.storage.codec import encode_ticks
from ticklake.storage.columns import TickColumns

_CELLS_A_CALL = 100_000


class SimulationService(Service):
    """Runs a world from tick 0 for `ticks` ticks, or until it is stopped: either way that is the end of its run.

    A tick counts as accepted once it is in the queue; a full queue makes the simulation wait.
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
        self.metadata = self._world.metadata(run_id, self._now_ms())
        self.monitor.gauge("tick", lambda: self._world.tick)
        self.monitor.gauge("organisms", lambda: len(self._world.organisms))

    def run(self) -> None:
        for columns in self._groups():
            if not self._emit(columns):
                break
        self._queue.close()

    def wake(self) -> None:
        self._queue.wake()

    def _groups(self) -> Iterator[list[TickColumns]]:
        """Sampled ticks, a few at a time: encoding costs less that way."""
        group: list[TickColumns] = []
        while self.proceed() and (self._ticks is None or self._world.tick < self._ticks):
            if self._world.tick % self._world.settings.sampling_interval == 0:
                group.append(self._world.columns(self._now_ms()))
            if sum(len(tick.cells) for tick in group) >= _CELLS_A_CALL:
                yield group
                group = []
            self._world.step()
        if group:
            yield group

    def _emit(self, columns: list[TickColumns]) -> bool:
        for tick, encoded in zip(columns, encode_ticks(self._run_id, columns), strict=True):
            while not self._queue.put(encoded, unless=self.interrupted):
                if not self.proceed():
                    return False
            self.monitor.counter("ticks_produced").add()
            self.monitor.counter("cells_produced").add(len(tick.cells))
            self.monitor.window("ticks_produced_per_sec").add()
        return True

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)
