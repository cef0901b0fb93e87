"""Decides which runs an indexer works on now. Knows neither clock nor database."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

PLACES = 4
"""An indexer works on at most this many runs at once."""

TURN_SECONDS = 10.0
"""A run keeps its place at least this long while it has work."""

LIVE_SECONDS = 60.0
"""The newest run keeps its place this long without work: its producer is probably alive."""


_TIME = re.compile(r"[0-9]{8}-[0-9]{6}")


def by_age(run_id: str) -> tuple[bool, str]:
    """A sort key: the oldest first. Run ids begin with the time of their start; ids without a time count as old."""
    return _TIME.match(run_id) is not None, run_id


@dataclass
class _Active:
    since: float
    ending: bool = False


class Turns:
    """A fixed number of places for any number of runs.

    The newest run that has work gets a place as soon as possible, and keeps it. All others take turns. A free place
    goes in turn to the run that has waited longest, and to the newest of those that wait: so an old backlog and
    several live runs do not delay each other. A run without work keeps its place until another run needs it.
    """

    def __init__(self, places: int = PLACES, seconds: float = TURN_SECONDS) -> None:
        if places < 2:
            raise ValueError(f"needs a place for the newest run and one for the others, not {places}")
        self._places = places
        self._seconds = seconds
        self._waiting: dict[str, None] = {}  # in the order of their last turns
        self._active: dict[str, _Active] = {}
        self._newest_is_next = False

    @property
    def active(self) -> list[str]:
        return list(self._active)

    @property
    def waiting(self) -> list[str]:
        return list(self._waiting)

    def request(self, run_id: str) -> None:
        """The run has work. It waits for a place, unless it has one."""
        if run_id not in self._active:
            self._waiting.setdefault(run_id)

    def withdraw(self, run_id: str) -> None:
        """The run does not wait any more."""
        self._waiting.pop(run_id, None)

    def begin(self, now: float) -> list[str]:
        """Gives the free places away. Returns the runs that begin their turn."""
        begun = []
        while (run_id := self._next()) is not None:
            del self._waiting[run_id]
            self._active[run_id] = _Active(now)
            begun.append(run_id)
        return begun

    def to_end(self, now: float, idle: Mapping[str, float]) -> list[str]:
        """Returns the runs whose turn is over, each once. `idle`: the seconds for which a run has had no work."""
        newest = self._newest()
        free = self._places - len(self._active) + sum(1 for turn in self._active.values() if turn.ending)
        wanted = max(0, len(self._waiting) - free)
        rivals = sorted(
            (run_id not in idle, turn.since, run_id) for run_id, turn in self._active.items() if not turn.ending
        )
        over = [run_id for _, _, run_id in rivals if self._is_over(run_id, now, idle.get(run_id), run_id == newest)]
        if not over and not free and newest in self._waiting:
            over = [run_id for _, _, run_id in rivals[:1]]
        chosen = over[:wanted]
        for run_id in chosen:
            self._active[run_id].ending = True
        return chosen

    def end(self, run_id: str) -> None:
        """The run has left its place."""
        del self._active[run_id]

    def _next(self) -> str | None:
        if not self._waiting or len(self._active) >= self._places:
            return None
        newest = self._newest()
        if newest in self._waiting:
            return newest
        self._newest_is_next = not self._newest_is_next
        return next(iter(self._waiting)) if self._newest_is_next else max(self._waiting, key=by_age)

    def _is_over(self, run_id: str, now: float, idle: float | None, is_newest: bool) -> bool:
        if is_newest:
            return idle is not None and idle >= LIVE_SECONDS
        return idle is not None or now - self._active[run_id].since >= self._seconds

    def _newest(self) -> str | None:
        return max((*self._waiting, *self._active), key=by_age, default=None)
