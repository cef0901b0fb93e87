"""Decides which runs an indexer works on now. Knows neither clock nor database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

PLACES = 4
"""An indexer works on at most this many runs at once."""

TURN_SECONDS = 10.0
"""A run keeps its place at least this long while it has work."""

LIVE_SECONDS = 60.0
"""The newest run keeps its place this long without work: its producer is probably alive."""


@dataclass
class _Active:
    since: float
    ending: bool = False


class Turns:
    """A fixed number of places for any number of runs.

    The newest run that has work gets a place as soon as possible, and keeps it. All others take turns, so an old
    backlog and a live run do not delay each other. A run without work keeps its place until another run needs it.
    """

    def __init__(self, places: int = PLACES, seconds: float = TURN_SECONDS) -> None:
        if places < 2:
            raise ValueError(f"needs a place for the newest run and one for the others, not {places}")
        self._places = places
        self._seconds = seconds
        self._waiting: dict[str, None] = {}  # in the order of their last turns
        self._active: dict[str, _Active] = {}

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
        """The newest run first. The others leave one place free for the newest."""
        if not self._waiting or len(self._active) >= self._places:
            return None
        newest = self._newest()
        if newest in self._waiting:
            return newest
        reserved = 0 if newest in self._active else 1
        return next(iter(self._waiting)) if len(self._active) + reserved < self._places else None

    def _is_over(self, run_id: str, now: float, idle: float | None, is_newest: bool) -> bool:
        if is_newest:
            return idle is not None and idle >= LIVE_SECONDS
        return idle is not None or now - self._active[run_id].since >= self._seconds

    def _newest(self) -> str | None:
        """Run ids begin with the time of their start."""
        return max((*self._waiting, *self._active), default=None)
