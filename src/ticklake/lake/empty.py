"""Ticks that are in a table and have no row there: the commit that indexed them says so."""

from __future__ import annotations

import json
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
from deltalake import DeltaTable

Ticks = npt.NDArray[np.int64]

EMPTY = "ticklake.empty"
"""The commit metadata that names them, as `[[first, last, step], …]`."""

REMOVED = "ticklake.removed"
"""The commit metadata of a removal: `[first, last]`."""


def packed(ticks: Ticks) -> str:
    """Ascending ticks as few runs of even steps."""
    runs: list[list[int]] = []
    for tick in ticks.tolist():
        if runs and runs[-1][0] == runs[-1][1]:
            runs[-1][1:] = [tick, tick - runs[-1][0]]
        elif runs and tick - runs[-1][1] == runs[-1][2]:
            runs[-1][1] = tick
        else:
            runs.append([tick, tick, 1])
    return json.dumps(runs)


def unpacked(text: str) -> Ticks:
    return joined(np.arange(first, last + 1, step, dtype=np.int64) for first, last, step in json.loads(text))


def recorded(delta: DeltaTable) -> Ticks:
    """All that the commits of a table name and no later one has removed, as far back as its log goes."""
    ticks = np.empty(0, np.int64)
    for commit in reversed(delta.history()):
        if REMOVED in commit:
            first, last = json.loads(commit[REMOVED])
            ticks = ticks[(ticks < first) | (ticks > last)]
        if EMPTY in commit:
            ticks = joined([ticks, unpacked(commit[EMPTY])])
    return ticks


def joined(parts: Iterable[Ticks]) -> Ticks:
    return np.unique(np.concatenate([np.empty(0, np.int64), *parts]))
