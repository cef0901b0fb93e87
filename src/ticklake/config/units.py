"""Durations and sizes: a number with a unit, or a bare number in the unit of the option."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

_SECONDS = {
    **dict.fromkeys(("ns", "nano", "nanos", "nanosecond", "nanoseconds"), 1e-9),
    **dict.fromkeys(("us", "micro", "micros", "microsecond", "microseconds"), 1e-6),
    **dict.fromkeys(("ms", "milli", "millis", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("s", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
}
_BYTES = {"": 1, "b": 1, "byte": 1, "bytes": 1}
for _power, _prefix in enumerate("kmgt", start=1):
    _BYTES[f"{_prefix}b"] = 1000**_power
    _BYTES |= dict.fromkeys((_prefix, f"{_prefix}i", f"{_prefix}ib"), 1024**_power)
_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")


def seconds(value: Any) -> Any:
    """Converts a duration to seconds. Bare numbers are seconds."""
    return _duration(value, bare=1.0)


def milliseconds(value: Any) -> Any:
    """Converts a duration to whole milliseconds. Bare numbers are milliseconds."""
    found = _duration(value, bare=1e-3)
    return round(found * 1000) if isinstance(found, float) and math.isfinite(found) else found


def size(value: Any) -> Any:
    """Converts a size to bytes: `64 MiB`, `64m` (both 1024-based), `64 MB` (1000-based)."""
    if hasattr(value, "normalized"):
        raise ValueError("m without quotes means minutes; write MiB or MB")
    if not isinstance(value, str):
        return value
    number, factor = _quantity(value, _BYTES, "bytes, kB, MB, GB, KiB, MiB, GiB")
    return round(number * factor)


def _duration(value: Any, bare: float) -> Any:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, int | float):
        return float(value) * bare
    if isinstance(value, str):
        number, factor = _quantity(value, {"": bare, **_SECONDS}, "ms, s, m, h, d")
        return number * factor
    return _relative(value)


def _relative(value: Any) -> Any:
    """Converts dateutil's relativedelta, which pyhocon returns for most units. Refuses months and years."""
    if not hasattr(value, "normalized"):
        return value
    if value.months or value.years:
        raise ValueError("months and years have no fixed length; use d, h, m, s or ms")
    parts = timedelta(days=value.days, hours=value.hours, minutes=value.minutes, seconds=value.seconds)
    return (parts + timedelta(microseconds=value.microseconds)).total_seconds()


def _quantity(text: str, units: dict[str, Any], allowed: str) -> tuple[float, Any]:
    if text.lstrip().startswith("-"):
        raise ValueError("cannot be negative")
    match = _QUANTITY.fullmatch(text)
    unit = match[2] if match else text
    factor = units.get(unit, units.get(unit.lower()))
    if not match or factor is None:
        raise ValueError(f"must be a number with a unit: {allowed}")
    return float(match[1]), factor


Milliseconds = Annotated[int, BeforeValidator(milliseconds), Field(ge=0)]
Seconds = Annotated[float, BeforeValidator(seconds), Field(ge=0)]
Bytes = Annotated[int, BeforeValidator(size), Field(ge=0)]
