"""What live pages show, sampled once for all who look."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from starlette.concurrency import run_in_threadpool

from ticklake.errors import TickLakeError
from ticklake.insights import Announcement, Glance, announced_of, rows_per_second
from ticklake.logs import redacted
from ticklake.services.persistence import BATCH_TOPIC
from ticklake.services.simulation import SimulationService
from ticklake.web.pipeline import Flow, Producer
from ticklake.web.site import Site

SAMPLE_SECONDS = 2.0
STEP_SECONDS = 0.25
REMEMBERED = 90
RUNS = 16


class Watch:
    """One run, looked at every two seconds as long as somebody wants to know; whoever asks in between gets the last."""

    def __init__(self, site: Site, run_id: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._site, self._run_id, self._clock = site, run_id, clock
        self._looking = threading.Lock()
        self._flow = Flow(Glance(run_id, 0.0, [], [], []), None, {}, None, None)
        self._next = clock()
        self.looks = 0
        self.history: deque[tuple[float, float]] = deque(maxlen=REMEMBERED)

    def flow(self) -> Flow:
        # The first look is waited for; later ones are somebody's, and the others take what there is.
        if self._clock() >= self._next and self._looking.acquire(blocking=not self.looks):
            try:
                if self._clock() >= self._next:
                    self._flow = self._look()
                    self.looks += 1
                    self._next = self._clock() + SAMPLE_SECONDS
            finally:
                self._looking.release()
        return self._flow

    def _look(self) -> Flow:
        before = self._flow
        try:
            seen = self._site.places.glance(self._run_id)
            announced = self._announced(seen)
        except (TickLakeError, OSError) as error:
            return replace(before, rates={}, ticks_per_second=None, errors=(redacted(str(error)),))
        seconds = seen.at - before.glance.at
        rates = rows_per_second(before.glance if self.looks else None, seen)
        self.history.append((seen.at, sum(rates.values())))
        speed = _speed(before.announced, announced, seconds) if self.looks else None
        errors = (*(table.error for table in seen.tables if table.error), *self._failures())
        return Flow(seen, announced, rates, speed, self._producer(), errors)

    def _announced(self, seen: Glance) -> Announcement | None:
        if self._site.database is None:
            return None
        return announced_of(self._site.database, self._run_id, {BATCH_TOPIC, *(group.topic for group in seen.groups)})

    def _producer(self) -> Producer | None:
        node = self._site.node
        services = node.services.values() if node is not None and self._run_id in node.runs() else []
        for service in services:
            if isinstance(service, SimulationService):
                return Producer(service.name, service.state.value, int(service.monitor.gauges["tick"]()))
        return None

    def _failures(self) -> list[str]:
        node = self._site.node
        return [] if node is None else [f"{one.name}: {redacted(str(one.error))}" for one in node.failed]


class Live:
    """The runs that are being watched; the one that nobody asked for longest makes room."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._lock = threading.Lock()
        self._watches: OrderedDict[str, Watch] = OrderedDict()
        self.closing = False

    def watch(self, run_id: str) -> Watch:
        with self._lock:
            watch = self._watches.setdefault(run_id, Watch(self._site, run_id))
            self._watches.move_to_end(run_id)
            while len(self._watches) > RUNS:
                self._watches.popitem(last=False)
            return watch

    async def events(self, run_id: str, render: Callable[[Watch], str]) -> AsyncIterator[str]:
        """Server-sent events, one a sample, until the viewer leaves or the server stops."""
        watch = self.watch(run_id)
        while not self.closing:
            yield _event(await run_in_threadpool(render, watch))
            until = time.monotonic() + SAMPLE_SECONDS
            while not self.closing and time.monotonic() < until:
                await asyncio.sleep(STEP_SECONDS)


def _event(text: str) -> str:
    return "".join(f"data: {line}\n" for line in text.splitlines() if line.strip()) + "\n"


def _speed(before: Announcement | None, after: Announcement | None, seconds: float) -> float | None:
    if before is None or after is None or seconds <= 0:
        return None
    return (after.ticks.end - before.ticks.end) / seconds
