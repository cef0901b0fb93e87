"""Types of numeric options: counts, durations, ports and ranges of ticks."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ticklake.ticks import TickRange

MAX_INTEGER = 2**63 - 1
MAX_SECONDS = 100 * 365 * 86_400.0
PORT = click.IntRange(0, 65535)


def count(minimum: int = 0) -> click.IntRange:
    """Returns the type of a count that fits into a signed 64-bit integer."""
    return click.IntRange(minimum, MAX_INTEGER)


class Seconds(click.FloatRange):
    """A finite duration."""

    name = "seconds"

    def __init__(self, minimum: float = 0.0) -> None:
        super().__init__(minimum, MAX_SECONDS)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds: float = super().convert(value, param, ctx)
        if math.isnan(seconds):
            self.fail("nan is not a number of seconds.", param, ctx)
        return seconds


class TickRangeOption(click.ParamType["TickRange"]):
    """`A:B`, both included."""

    name = "A:B"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> TickRange:
        from ticklake.ticks import TickRange

        numbers = re.fullmatch(r"([0-9]{1,19}):([0-9]{1,19})", value)
        ticks = TickRange(int(numbers[1]), int(numbers[2])) if numbers else None
        if not ticks or ticks.end > MAX_INTEGER:
            self.fail(f"{value[:100]!r} is not a tick range; write for example 0:999", param, ctx)
        return ticks
