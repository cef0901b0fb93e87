"""Services of a node: simulation, persistence, completion, reconciliation, compaction."""

from __future__ import annotations

from ticklake.services.base import Service, State
from ticklake.services.closing import Recorded, announce_end, announce_files, record_close, silent_seconds
from ticklake.services.compaction import CompactionService
from ticklake.services.completion import CompletionService
from ticklake.services.earlier import BegunRun, EarlierRuns
from ticklake.services.metadata import MetadataPersistenceService
from ticklake.services.persistence import PersistenceOptions, PersistenceService
from ticklake.services.producer import Producer
from ticklake.services.queue import TickQueue
from ticklake.services.reconciliation import ReconciliationService
from ticklake.services.retry import Retry
from ticklake.services.simulation import SimulationService

__all__ = [
    "BegunRun",
    "CompactionService",
    "CompletionService",
    "EarlierRuns",
    "MetadataPersistenceService",
    "PersistenceOptions",
    "PersistenceService",
    "Producer",
    "ReconciliationService",
    "Recorded",
    "Retry",
    "Service",
    "SimulationService",
    "State",
    "TickQueue",
    "announce_end",
    "announce_files",
    "record_close",
    "silent_seconds",
]
