"""What a stopped node leaves to the next start: files without a message, and files without rows in a table."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice

from ticklake.database.errors import RunNotInDatabase
from ticklake.errors import TickLakeError
from ticklake.indexers.batch import BatchIndexer
from ticklake.services import (
    MetadataPersistenceService,
    PersistenceService,
    ReconciliationService,
    Service,
    TickQueue,
)

MAX_RUNS = 100
"""Counts in at most this many runs of an indexer, so that a stop stays short."""


@dataclass(frozen=True)
class Leftovers:
    """`unindexed` and `more` are by service. `more`: there are further runs that were not counted.

    `unwritten`: ticks in queues whose persistence service was stopped before the simulation. They were only in memory.
    `reconciles`: whether a service announces files that have no message.
    """

    unannounced: int = 0
    unindexed: dict[str, int] = field(default_factory=dict)
    more: frozenset[str] = frozenset()
    unknown: tuple[str, ...] = ()
    follows: bool = True
    unwritten: int = 0
    reconciles: bool = True

    def __str__(self) -> str:
        return " ".join(one for one in (self._ticks(), self._files(), self._rows(), self._asked_in_vain()) if one)

    def _ticks(self) -> str:
        if not self.unwritten:
            return "Everything that was accepted is written."
        return f"{self.unwritten:,} ticks are lost: no persistence service was running to write them."

    def _files(self) -> str:
        if not self.unannounced:
            return ""
        how = "Reconciliation" if self.reconciles else "`ticklake reconcile RUN --apply`"
        return f"{self.unannounced:,} files are not announced, because the database is away. {how} announces them."

    def _rows(self) -> str:
        left = [
            f"{'more than ' if name in self.more else ''}{count:,} files by {name}"
            for name, count in self.unindexed.items()
        ]
        if not left:
            return ""
        how = "The next start continues with them." if self.follows else "`ticklake index RUN` indexes them."
        return f"Not indexed yet: {', '.join(left)}. {how}"

    def _asked_in_vain(self) -> str:
        return (
            f"What is left for {', '.join(self.unknown)} is not known: the database does not answer."
            if self.unknown
            else ""
        )


def leftovers_of(services: Iterable[Service], queues: Iterable[TickQueue] = ()) -> Leftovers:
    """Counts what stopped services have left. Needs their databases."""
    found = list(services)
    reconciles = any(isinstance(one, ReconciliationService) for one in found)
    producers = [one for one in found if isinstance(one, (MetadataPersistenceService, PersistenceService))]
    unindexed: dict[str, int] = {}
    more: set[str] = set()
    unknown: list[str] = []
    indexers = [one for one in found if isinstance(one, BatchIndexer)]
    for one in indexers:
        runs = one.unfinished_runs
        try:
            count = sum(_lag(one, run_id) for run_id in islice(reversed(runs), MAX_RUNS))
        except TickLakeError:
            unknown.append(one.name)
            continue
        if count:
            unindexed[one.name] = count
        if len(runs) > MAX_RUNS:
            more.add(one.name)
    follows = all(one.options.runs is not None for one in indexers if one.name in unindexed)
    unannounced = sum(one.unannounced for one in producers)
    unwritten = sum(map(len, queues))
    return Leftovers(unannounced, unindexed, frozenset(more), tuple(unknown), follows, unwritten, reconciles)


def _lag(indexer: BatchIndexer, run_id: str) -> int:
    resources = indexer.resources
    if indexer.source is not None:
        return indexer.source.count(run_id)
    if resources.database is None or not resources.topic:
        return 0
    group = resources.group or indexer.name
    with resources.database.branch() as branch, suppress(RunNotInDatabase):  # a deleted run has nothing left
        run = branch.run(run_id, create=False)
        lags = {one.group: one.lag for one in run.groups.list(resources.topic)}
        if group in lags:
            return lags[group]
        # A group that has not joined lacks all messages.
        return sum(one.messages for one in run.topics() if one.topic == resources.topic)
    return 0
