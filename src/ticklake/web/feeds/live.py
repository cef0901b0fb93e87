"""The data of live pages, sampled once for all viewers."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from starlette.concurrency import run_in_threadpool

from ticklake.errors import TickLakeError
from ticklake.insights import Announcement, Glance, announced_of, rows_per_second
from ticklake.logs import redacted
from ticklake.separate_reads import Attempts
from ticklake.services import SimulationService
from ticklake.web.feeds.pipeline import Flow, Producer
from ticklake.web.feeds.sampling import PerRun, Sampler
from ticklake.web.site import Site

SAMPLE_SECONDS = 2.0
POLL_SECONDS = 0.5
HISTORY_LENGTH = 90


class Watch:
    """Samples a run every two seconds while it has viewers."""

    def __init__(self, site: Site, run_id: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._site, self._run_id = site, run_id
        self._flow: Flow | None = None
        self._sampler = Sampler(self._sample, SAMPLE_SECONDS, clock)
        self._drawn: tuple[Flow, str] | None = None
        self.history: deque[float] = deque(maxlen=HISTORY_LENGTH)

    def flow(self) -> Flow:
        return self._sampler.latest()

    def drawn(self, draw: Callable[[Flow], str]) -> str:
        """Returns the last sample as drawn by `draw`. It is drawn once for all viewers."""
        flow, drawn = self.flow(), self._drawn
        if drawn is None or drawn[0] is not flow:
            drawn = self._drawn = flow, draw(flow)
        return drawn[1]

    def _sample(self) -> Flow:
        self._flow = self._compared(self._flow)
        return self._flow

    def _compared(self, before: Flow | None) -> Flow:
        try:
            seen = self._site.places.glance(self._run_id)
        except (TickLakeError, OSError) as error:
            last = before or Flow(Glance(self._run_id, 0.0, [], [], [], errors=[str(error)]), None, {}, None, None)
            return replace(last, rates={}, ticks_per_second=None, errors=(redacted(str(error)),))
        # A database that does not answer is not asked again: that can take long.
        attempts = Attempts()
        asked = [] if seen.errors else self._site.databases
        announced = attempts.read(self._site, lambda: announced_of(asked, self._run_id))
        seen = replace(seen, errors=seen.errors or attempts.errors)
        rates = rows_per_second(before.glance if before else None, seen)
        self.history.append(sum(rates.values()))
        speed = _speed(before.announced, announced, seen.at - before.glance.at) if before else None
        problems = (*seen.errors, *(table.error for table in seen.tables if table.error))
        errors = (*map(redacted, problems), *self._failures())
        backlogs = self._site.backlogs.latest()
        others = backlogs.without([self._run_id])
        seen = seen.with_files(backlogs.coordinated_of(self._run_id))
        return Flow(seen, announced, rates, speed, self._producer(), errors, others)

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
    """The runs that have viewers."""

    def __init__(self, site: Site) -> None:
        self._watches = PerRun(lambda run_id: Watch(site, run_id))
        self.closing = False

    def watch(self, run_id: str) -> Watch:
        return self._watches[run_id]

    async def events(self, run_id: str, render: Callable[[Watch], str]) -> AsyncIterator[str]:
        """Yields server-sent events, one per sample, until the viewer leaves or the server stops."""
        watch = self.watch(run_id)
        while not self.closing:
            yield _event(await run_in_threadpool(render, watch))
            until = time.monotonic() + SAMPLE_SECONDS
            while not self.closing and time.monotonic() < until:
                await asyncio.sleep(POLL_SECONDS)


def _event(text: str) -> str:
    return "".join(f"data: {line}\n" for line in text.splitlines() if line.strip()) + "\n"


def _speed(before: Announcement | None, after: Announcement | None, seconds: float) -> float | None:
    if before is None or after is None or seconds <= 0:
        return None
    return max(0, after.ticks.end - before.ticks.end) / seconds
