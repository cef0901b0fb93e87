"""What the file of an event queue says of its batches: read by anybody, also while a process has the queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

from ticklake.database.errors import DatabaseDamaged
from ticklake.database.sqlite import SqliteSchema, identity
from ticklake.database.versions import package_versions
from ticklake.events.batches import PACKAGE
from ticklake.events.errors import EventQueueNotFound, NoEventQueue


class BatchRecord(NamedTuple):
    """A batch that the queue has not forgotten. `status` is pending, processing, done or dead.

    `run_id` is the run that it was handed to; None if to nobody yet, or if an older version did it.
    """

    sequence: int
    status: str
    event_count: int
    run_id: str | None = None


@dataclass(frozen=True)
class QueueRecords:
    """The queue's id and all of its batches in their order."""

    path: Path
    queue_id: str
    batches: Sequence[BatchRecord]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Waits for no writer. Changes nothing, except that tables of an older version are upgraded."""
        check_queue(path)
        schema = SqliteSchema(path, "indexer-queue")
        try:
            if any(found.state != "current" for found in package_versions(schema)):
                schema.prepare(PACKAGE)
            with schema.reading() as view:
                sql = view.sql(PACKAGE)
                ((queue_id,),) = sql.queue_id()
                return cls(path, queue_id, [BatchRecord(*row) for row in sql.all_batches()])
        finally:
            schema.close()

    def of_run(self, run_id: str) -> tuple[dict[int, BatchRecord], list[int]]:
        """The batches that belong to a run by number, and the numbers of those that belong to others.

        One that was handed to nobody belongs to the run of the one before it; without one before it, to any run.
        """
        mine: dict[int, BatchRecord] = {}
        others: list[int] = []
        owner: str | None = None
        for record in self.batches:
            owner = record.run_id or owner
            if owner in (None, run_id):
                mine[record.sequence] = record
            else:
                others.append(record.sequence)
        return mine, others


def differences(records: Mapping[int, BatchRecord], rows: Mapping[int, int]) -> list[str]:
    """Batches of which a table has another number of rows than the queue has events."""
    return [
        f"batch {number} has {count:,} rows, the queue has {records[number].event_count:,} events"
        for number, count in rows.items()
        if number in records and count != records[number].event_count
    ]


def check_queue(path: Path) -> None:
    """Raises if there is no event queue in this file. Leaves nothing beside it.

    Only SQLite may open the file: this process may have it open, and to close it anywhere else drops SQLite's locks.
    """
    if identity(str(path)) is None or path.is_dir():
        raise EventQueueNotFound(queue=str(path))
    schema = SqliteSchema(path, "indexer-queue")
    try:
        with schema.reading() as view:
            if not view.sql(PACKAGE).is_queue():
                raise NoEventQueue(queue=str(path))
    except DatabaseDamaged as error:
        if "file is not a database" in str(error):  # not one that is damaged
            raise NoEventQueue(queue=str(path)) from error
        raise
    finally:
        schema.close()
