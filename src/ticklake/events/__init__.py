"""Events of a process: a bus, and a queue that stores its events in a SQLite file, in batches."""

from __future__ import annotations

from ticklake.events.batches import Batch, DeadBatch
from ticklake.events.bus import EventBus
from ticklake.events.event import Event
from ticklake.events.queue import IndexerQueue, QueueMetrics

__all__ = ["Batch", "DeadBatch", "Event", "EventBus", "IndexerQueue", "QueueMetrics"]
