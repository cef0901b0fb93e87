"""Exponential back-off: the pause after so many failures in a row."""

from __future__ import annotations

_MOST_DOUBLINGS = 60


def pause_after(failures: int, *, first: float = 1.0, longest: float) -> float:
    """`first` seconds after one failure, then twice as long each time, up to `longest`."""
    return min(first * 2.0 ** min(failures - 1, _MOST_DOUBLINGS), longest)
