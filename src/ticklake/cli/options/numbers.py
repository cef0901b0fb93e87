"""Types of numeric options: counts, durations and ports."""

from __future__ import annotations

import math
from typing import Any

import click

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
