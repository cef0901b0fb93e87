"""Errors of the simulation."""

from __future__ import annotations

from ticklake.errors import TickLakeError


class BadSimulationSettings(TickLakeError):
    message = "The simulation cannot run with {setting} = {value!r}: {reason}."
    setting: str
    value: object
    reason: object
