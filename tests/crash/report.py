"""What a scene has shown: which acts there were, how much they met, and everything that was wrong."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field


@dataclass
class Findings:
    """`acts` counts what was done to the scene, `figures` what it dealt with; `complaints` is empty if all is well."""

    acts: Counter[str] = field(default_factory=Counter)
    figures: Counter[str] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)

    def add(self, other: Findings) -> None:
        self.acts += other.acts
        self.figures += other.figures
        self.complaints += other.complaints

    def __str__(self) -> str:
        lines = [_counted("acts", self.acts), _counted("figures", self.figures)]
        return "\n".join([*lines, *(f"wrong       {complaint}" for complaint in self.complaints)])


def _counted(title: str, counts: Mapping[str, int]) -> str:
    return f"{title:<12}" + ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))


class Script:
    """Draws acts by their weights, from a seed: the same seed gives the same acts in the same order."""

    def __init__(self, weights: Mapping[str, int], rng: random.Random, only: Collection[str] = ()) -> None:
        self._weights = {act: weight for act, weight in weights.items() if not only or act in only}
        self._rng = rng

    def __bool__(self) -> bool:
        return bool(self._weights)

    def draw(self) -> str:
        (act,) = self._rng.choices(list(self._weights), list(self._weights.values()))
        return act
