"""Checks times and numbers from callers before anything changes."""

from __future__ import annotations

import math

from ticklake.errors import TickLakeError

LONGEST_SECONDS = 1_000_000_000
"""About 30 years. Every database and clock can add that to the current time."""

LARGEST_COUNT = (1 << 63) - 1


class InvalidOption(TickLakeError):
    message = "{option} cannot be {value!r}: {allowed}."
    option: str
    value: object
    allowed: str


def check_seconds(option: str, value: float, *, above_zero: bool = False, most: int = LONGEST_SECONDS) -> float:
    """Returns `value`. Raises `InvalidOption` unless it is a finite number of seconds in the allowed range."""
    if _is_number(value) and 0 <= value <= most and (value > 0 or not above_zero):
        return value
    allowed = f"more than 0 seconds, up to {most:,}" if above_zero else f"0 to {most:,} seconds"
    raise InvalidOption(option=option, value=value, allowed=allowed)


def deadline_after(seconds: float, now: float, option: str = "timeout") -> float | None:
    """Returns when a wait of `seconds` ends; None if never. A negative wait has already ended."""
    if not _is_number(seconds) or math.isnan(seconds):
        raise InvalidOption(option=option, value=seconds, allowed="a number of seconds")
    return None if seconds > LONGEST_SECONDS else now + seconds


def check_count(option: str, value: int, *, least: int = 0, most: int = LARGEST_COUNT) -> int:
    """Returns `value`. Raises `InvalidOption` unless it is a whole number in the allowed range."""
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
        return value
    upper = "or more" if most == LARGEST_COUNT else f"to {most:,}"
    raise InvalidOption(option=option, value=value, allowed=f"a whole number, {least} {upper}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_function(option: str, value: object) -> None:
    """Raises `InvalidOption` if a value cannot be called."""
    if not callable(value):
        raise InvalidOption(option=option, value=value, allowed="it must be a function; omit it for the default")
