"""The settings of a simulation. The rules of its world are constants next to the code that uses them."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass

from ticklake.simulation.errors import BadSimulationSettings

_MAX_CELLS = 1 << 26


@dataclass(frozen=True)
class SimulationSettings:
    """A world and its sampling. The same settings produce the same ticks on every machine."""

    shape: tuple[int, int] = (128, 128)
    seed: int = 42
    organisms: int = 200
    season_ticks: int = 160
    sampling_interval: int = 1

    def __post_init__(self) -> None:
        self._require("shape", len(self.shape) == 2 and min(self.shape) >= 3, "must have two sides of at least 3 cells")
        self._require("shape", self.shape[0] * self.shape[1] <= _MAX_CELLS, f"must have at most {_MAX_CELLS} cells")
        self._require("seed", 0 <= self.seed < 2**63, "must be a number from 0 to 2**63 - 1")
        self._require("organisms", self.organisms >= 1, "must be at least 1")
        self._require("season_ticks", self.season_ticks >= 2, "must be at least 2")
        self._require("sampling_interval", 1 <= self.sampling_interval < 2**31, "must be a number from 1 to 2**31 - 1")

    def _require(self, setting: str, valid: bool, reason: str) -> None:
        if not valid:
            raise BadSimulationSettings(setting=setting, value=getattr(self, setting), reason=reason)

    def as_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), sort_keys=True)
