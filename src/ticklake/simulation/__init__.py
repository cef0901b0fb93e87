"""A small artificial-life simulation: the producer that comes with TickLake."""

from ticklake.simulation.ecosystem import Ecosystem
from ticklake.simulation.settings import SimulationSettings

__all__ = ["Ecosystem", "SimulationSettings"]
