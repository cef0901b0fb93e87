"""Errors of the simulation."""

from __future__ import annotations

from ticklake.errors import TickLakeError


class BadSimulationSettings(TickLakeError):
    message = "The simulation cannot use {setting} = {value!r}: it {reason}."
    setting: str
    value: object
    reason: object
