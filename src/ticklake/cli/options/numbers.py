"""Numbers of options: counts that a database can hold, times that a wait can take, and ports."""

from __future__ import annotations

import math
from typing import Any

import click

MOST = 2**63 - 1
LONGEST_SECONDS = 100 * 365 * 86_400.0
PORT = click.IntRange(0, 65535)


def count(least: int = 0) -> click.IntRange:
    """How many of something: what a 64-bit integer can hold."""
    return click.IntRange(least, MOST)


class Seconds(click.FloatRange):
    """A finite time."""

    name = "seconds"

    def __init__(self, least: float = 0.0) -> None:
        super().__init__(least, LONGEST_SECONDS)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds: float = super().convert(value, param, ctx)
        if math.isnan(seconds):
            self.fail("nan is not a number of seconds.", param, ctx)
        return seconds
