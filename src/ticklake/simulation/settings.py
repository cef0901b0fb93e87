"""What a user chooses about a simulation; the laws of its world are constants beside the code they rule."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass

from ticklake.simulation.errors import BadSimulationSettings

_MAX_CELLS = 1 << 26


@dataclass(frozen=True)
class SimulationSettings:
    """A world and how it is observed. The same settings give the same ticks, on every machine."""

    shape: tuple[int, int] = (128, 128)
    seed: int = 42
    organisms: int = 200
    season_ticks: int = 160
    sampling_interval: int = 1

    def __post_init__(self) -> None:
        self._require("shape", len(self.shape) == 2 and min(self.shape) >= 3, "it needs two sides of 3 cells or more")
        self._require("shape", self.shape[0] * self.shape[1] <= _MAX_CELLS, f"{_MAX_CELLS} cells are the most")
        self._require("seed", 0 <= self.seed < 2**63, "it is a number from 0 to 2**63 - 1")
        self._require("organisms", self.organisms >= 1, "nothing comes from nothing")
        self._require("season_ticks", self.season_ticks >= 2, "a year has a summer and a winter")
        self._require("sampling_interval", 1 <= self.sampling_interval < 2**31, "every n-th tick is emitted, n from 1")

    def _require(self, setting: str, fine: bool, reason: str) -> None:
        if not fine:
            raise BadSimulationSettings(setting=setting, value=getattr(self, setting), reason=reason)

    def as_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), sort_keys=True)
