"""`tick_stats`: one row per tick. It reads organisms only; what cells hold is in `cell_stats`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ticklake.indexers.analytics.groups import Groups, grouped
from ticklake.indexers.analytics.population import LIFE, Bools, Ints, Population
from ticklake.indexers.batch import BatchIndexer
from ticklake.lake.table import Table
from ticklake.world import World

PERCENTILES = (0, 10, 25, 50, 75, 90, 100)
SCHEMA = pa.schema(
    [
        ("tick_number", pa.int64()),
        ("alive", pa.int64()),
        ("dead", pa.int64()),
        ("births", pa.int64()),
        ("deaths", pa.int64()),
        ("energy_sum", pa.int64()),
        ("energy_min", pa.int32()),
        ("energy_max", pa.int32()),
        ("entropy_sum", pa.int64()),
        ("entropy_max", pa.int32()),
        *((f"age_p{percent}", pa.int64()) for percent in PERCENTILES),
        ("genomes", pa.int64()),
        ("bodied", pa.int64()),
        ("genome_entropy", pa.float64()),
        ("genome_simpson", pa.float64()),
        ("dominant_genome", pa.int64()),
        ("dominant_count", pa.int64()),
        ("programs", pa.int64()),
        ("failed", pa.int64()),
        ("executed", pa.int64()),
        ("total_created", pa.int64()),
        ("total_genomes", pa.int64()),
        ("exact", pa.bool_()),
    ]
)
_DIGITS = 12
"""Logarithms of different machines differ in their last bit, but rows must not."""


class TickStatsIndexer(BatchIndexer):
    """The living, the births and the deaths of each tick, in figures."""

    table = Table("tick_stats", key=("tick_number",), schema=SCHEMA)
    reads = (
        *LIFE,
        *("total_organisms_created", "total_unique_genomes"),
        *(f"organisms.{name}" for name in ("energy", "entropy_register", "genome_hash", "program_id")),
        *("organisms.instruction_opcode_id", "organisms.instruction_failed"),
    )

    @staticmethod
    def rows(ticks: pa.RecordBatch, world: World | None) -> pa.RecordBatch:
        population = Population(ticks, world)
        living = _Living(population)
        died, told = population.count(population.died), population.tells_the_dead
        complete = np.full(len(ticks), population.births_are_complete, np.object_)
        complete[told] = True
        columns = {
            "tick_number": ticks.column("tick_number"),
            "alive": pa.array(living.counts),
            "dead": pa.array(died),
            "births": pa.array(population.count(population.newborn)),
            "deaths": pa.array(died, mask=(died == 0) & ~told),
            **living.energies(),
            **living.entropies(),
            **living.ages(),
            **living.genomes(),
            "programs": pa.array(living.programs()),
            **living.instructions(),
            "total_created": ticks.column("total_organisms_created"),
            "total_genomes": ticks.column("total_unique_genomes"),
            "exact": pa.array(complete, pa.bool_()),
        }
        return pa.RecordBatch.from_arrays([columns[name] for name in SCHEMA.names], schema=SCHEMA)


class _Living:
    """The living of each tick, and figures about them. Null if nobody lives, or if the format does not record it."""

    def __init__(self, population: Population) -> None:
        self._population = population
        self._some = population.taken(population.alive)
        self._places = population.places[self._some.positions]
        self._ticks = len(population.tick_numbers)
        self.counts: Ints = np.bincount(self._places, minlength=self._ticks)
        self._ends = np.cumsum(self.counts)
        self._starts = self._ends - self.counts
        self._nobody = self.counts == 0

    def energies(self) -> dict[str, pa.Array]:
        energy = self._some.numbers("energy")
        return {
            "energy_sum": pa.array(self._sum(energy)),
            "energy_min": self._reduced(np.minimum, energy, self._nobody),
            "energy_max": self._reduced(np.maximum, energy, self._nobody),
        }

    def entropies(self) -> dict[str, pa.Array]:
        entropy, unknown = self._some.numbers("entropy_register"), self._unknown("entropy_register")
        return {
            "entropy_sum": pa.array(self._sum(entropy), mask=unknown),
            "entropy_max": self._reduced(np.maximum, entropy, unknown | self._nobody),
        }

    def ages(self) -> dict[str, pa.Array]:
        births = self._some.numbers("birth_tick")
        # Usually the organisms of a tick are in the order of their birth already.
        later = (births[1:] >= births[:-1]) | (self._places[1:] > self._places[:-1])
        if not later.all():
            births = births[np.lexsort((births, self._places))]
        return {f"age_p{percent}": self._age(births, percent) for percent in PERCENTILES}

    def _age(self, births: Ints, percent: int) -> pa.Array:
        """Returns the age with the rank of a percentile, rounded half up, as the original does."""
        last = self.counts - 1
        older = (2 * last * percent + 100) // 200
        positions = np.where(self._nobody, 0, self._ends - 1 - older)
        chosen = births[positions] if len(births) else np.zeros(self._ticks, np.int64)
        return pa.array(self._population.tick_numbers - chosen, mask=self._nobody)

    def genomes(self) -> dict[str, pa.Array]:
        bodied = self._some.numbers("genome_hash") != 0
        hashes = self._some.column("genome_hash").filter(pa.array(bodied))
        groups, genomes = grouped(self._places[bodied], hashes)
        counts = groups.count()
        totals = self._per_tick(groups, counts)
        shares = counts / totals[groups.places]
        entropy = np.round(self._per_tick(groups, shares * -np.log(shares)), _DIGITS)
        best, dominant = self._dominant(groups, counts)
        unknown = self._unknown("genome_hash")
        found = {
            "genomes": np.bincount(groups.places, minlength=self._ticks),
            "bodied": totals.astype(np.int64),
            "genome_entropy": entropy + 0.0,  # no negative zero
            "genome_simpson": self._per_tick(groups, shares * shares),
            "dominant_count": dominant,
        }
        columns = {name: pa.array(values, mask=unknown) for name, values in found.items()}
        return columns | {"dominant_genome": genomes.take(pa.array(best, mask=dominant == 0))}

    def _dominant(self, groups: Groups, counts: Ints) -> tuple[Ints, Ints]:
        """Returns the most frequent genome of each tick, as a group, and its count. The lowest of equals wins."""
        order = np.lexsort((groups.codes, -counts, groups.places))
        first = order[np.unique(groups.places[order], return_index=True)[1]]
        best, dominant = np.zeros((2, self._ticks), np.int64)
        best[groups.places[first]], dominant[groups.places[first]] = first, counts[first]
        return best, dominant

    def programs(self) -> Ints:
        groups, _ = grouped(self._places, self._some.column("program_id"))
        return np.bincount(groups.places, minlength=self._ticks)

    def instructions(self) -> dict[str, pa.Array]:
        acting = self._population.known("instruction_opcode_id")[self._some.positions]
        failed = acting & self._population.flags("instruction_failed")[self._some.positions]
        executed = self._count(acting)
        unknown = (executed == 0) & ~self._nobody & (not self._population.records_opcodes)
        return {
            "executed": pa.array(executed, mask=unknown),
            "failed": pa.array(self._count(failed), mask=unknown),
        }

    def _unknown(self, name: str) -> Bools:
        """Returns for each tick whether organisms live and none has a value, so that the format does not record it."""
        known = self._population.known(name)[self._some.positions]
        unknown: Bools = (self._count(known) == 0) & ~self._nobody
        return unknown

    def _count(self, which: Bools) -> Ints:
        return np.bincount(self._places[which], minlength=self._ticks)

    def _per_tick(self, groups: Groups, values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Adds in the order of the groups, so that a sum depends on its tick only."""
        sums: npt.NDArray[np.float64] = np.bincount(groups.places, values, minlength=self._ticks).astype(np.float64)
        return sums

    def _sum(self, values: npt.NDArray[Any]) -> Ints:
        sums = np.zeros(len(values) + 1, np.int64)
        np.cumsum(values, out=sums[1:])
        found: Ints = sums[self._ends] - sums[self._starts]
        return found

    def _reduced(self, function: np.ufunc, values: npt.NDArray[Any], mask: Bools) -> pa.Array:
        found = np.zeros(self._ticks, np.int32)
        found[~self._nobody] = function.reduceat(values, self._starts[~self._nobody]) if len(values) else 0
        return pa.array(found, mask=mask)
