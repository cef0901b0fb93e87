"""Analytics: tables whose rows are a pure function of one tick, so they are exact in any order of the files."""

from __future__ import annotations

from ticklake.indexers.analytics.births import BirthsIndexer
from ticklake.indexers.analytics.cell_stats import CellStatsIndexer
from ticklake.indexers.analytics.deaths import DeathsIndexer
from ticklake.indexers.analytics.genome_counts import GenomeCountsIndexer
from ticklake.indexers.analytics.instruction_counts import InstructionCountsIndexer
from ticklake.indexers.analytics.mutation_events import MutationEventsIndexer
from ticklake.indexers.analytics.program_counts import ProgramCountsIndexer
from ticklake.indexers.analytics.tick_stats import TickStatsIndexer

PER_TICK = (
    *(TickStatsIndexer, BirthsIndexer, DeathsIndexer, GenomeCountsIndexer, ProgramCountsIndexer),
    *(CellStatsIndexer, InstructionCountsIndexer, MutationEventsIndexer),
)
"""The first layer of analytics. Tables that need several ticks are folded from these."""

__all__ = [
    "PER_TICK",
    "BirthsIndexer",
    "CellStatsIndexer",
    "DeathsIndexer",
    "GenomeCountsIndexer",
    "InstructionCountsIndexer",
    "MutationEventsIndexer",
    "ProgramCountsIndexer",
    "TickStatsIndexer",
]
