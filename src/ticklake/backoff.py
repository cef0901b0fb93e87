"""Exponential back-off: the pause after a number of failures in a row."""

from __future__ import annotations

_MAX_DOUBLINGS = 60


def pause_after(failures: int, *, first: float = 1.0, longest: float) -> float:
    """Returns the pause in seconds: `first` after one failure, then twice as long each time, up to `longest`."""
    return min(first * 2.0 ** min(failures - 1, _MAX_DOUBLINGS), longest)
