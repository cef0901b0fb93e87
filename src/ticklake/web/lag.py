"""How far behind the groups are, asked of the store itself, but not at every scrape."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from ticklake.errors import TickLakeError
from ticklake.insights import GroupReport, groups_of
from ticklake.node import Node

log = logging.getLogger(__name__)

SAMPLE_SECONDS = 5.0


class LagSample(NamedTuple):
    """`up` tells whether the store answered; if not, nothing is known."""

    up: bool
    groups: list[tuple[str, GroupReport]]


class LagSampler:
    """The groups of the node's runs. Whoever asks while another asks gets the sample before."""

    def __init__(
        self, node: Node, seconds: float = SAMPLE_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._node, self._seconds, self._clock = node, seconds, clock
        self._asking = threading.Lock()
        self._sample = LagSample(True, [])
        self._next = clock()

    def sample(self) -> LagSample:
        if self._clock() >= self._next and self._asking.acquire(blocking=False):
            try:
                self._sample = self._ask()
                self._next = self._clock() + self._seconds
            finally:
                self._asking.release()
        return self._sample

    def _ask(self) -> LagSample:
        node = self._node
        try:
            found = [(run, one) for db in node.databases for run in node.runs() for one in groups_of(db, run)]
        except (TickLakeError, OSError) as error:
            log.debug("The store did not answer: %s", error)
            return LagSample(False, [])
        return LagSample(True, found)
