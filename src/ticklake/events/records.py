"""What the file of an event queue says of its batches: read by anybody, also while a process has the queue."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ticklake.database.sqlite import SqliteSchema
from ticklake.errors import EventQueueNotFound
from ticklake.events.batches import PACKAGE


class BatchRecord(NamedTuple):
    """A batch that the queue has not forgotten. `status` is pending, processing, done or dead."""

    sequence: int
    status: str
    event_count: int


def batch_records(path: Path) -> list[BatchRecord]:
    """Every batch in its order. Changes nothing."""
    if not path.is_file():
        raise EventQueueNotFound(queue=str(path))
    schema = SqliteSchema(path, "indexer-queue")
    try:
        # A connection that only reads cannot tell a write-ahead log that it made itself from one that was moved.
        with schema.transaction(durable=False) as view:
            return [BatchRecord(*row) for row in view.sql(PACKAGE).all_batches()]
    finally:
        schema.close()
