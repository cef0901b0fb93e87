"""Events of this process, in durable batches: a bus, and the queue that bridges it to a SQLite file."""

from __future__ import annotations

from ticklake.events.batches import Batch, DeadBatch
from ticklake.events.bus import EventBus
from ticklake.events.event import Event
from ticklake.events.queue import IndexerQueue, QueueMetrics

__all__ = ["Batch", "DeadBatch", "Event", "EventBus", "IndexerQueue", "QueueMetrics"]
