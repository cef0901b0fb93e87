"""Services of a node: simulation, persistence, completion, reconciliation, compaction."""

from __future__ import annotations

from ticklake.services.base import Service, State
from ticklake.services.compaction import CompactionService
from ticklake.services.completion import CompletionService, end_of
from ticklake.services.metadata import MetadataPersistenceService
from ticklake.services.persistence import PersistenceOptions, PersistenceService
from ticklake.services.producer import Producer
from ticklake.services.queue import TickQueue
from ticklake.services.reconciliation import ReconciliationService
from ticklake.services.retry import Retry
from ticklake.services.simulation import SimulationService

__all__ = [
    "CompactionService",
    "CompletionService",
    "MetadataPersistenceService",
    "PersistenceOptions",
    "PersistenceService",
    "Producer",
    "ReconciliationService",
    "Retry",
    "Service",
    "SimulationService",
    "State",
    "TickQueue",
    "end_of",
]
