"""Reads the batches of an event queue from its file, even while another process uses the queue."""

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
    """A batch in the file of the queue. `status` is pending, processing, done or dead.

    `run_id` is its run; None if it has none yet, or if an older version of TickLake processed it.
    """

    sequence: int
    status: str
    event_count: int
    run_id: str | None = None


@dataclass(frozen=True)
class QueueRecords:
    """The id of a queue and all its batches, in order."""

    path: Path
    queue_id: str
    batches: Sequence[BatchRecord]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Reads a file without waiting for its writer. Tables of an older version are upgraded."""
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
        """Returns the batches of a run by number, and the numbers of the batches of other runs.

        A batch without a run belongs to the run of the batch before it. The first ones without a run belong to any run.
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
    """Returns a text for each batch whose number of rows in a table differs from its number of events."""
    return [
        f"batch {number} has {count:,} rows, the queue has {records[number].event_count:,} events"
        for number, count in rows.items()
        if number in records and count != records[number].event_count
    ]


def check_queue(path: Path) -> None:
    """Raises an error if the file is not an event queue. Creates no files.

    Only SQLite may open the file: if this process uses it too, closing it elsewhere would drop SQLite's locks.
    """
    if identity(str(path)) is None or path.is_dir():
        raise EventQueueNotFound(queue=str(path))
    schema = SqliteSchema(path, "indexer-queue")
    try:
        with schema.reading() as view:
            if not view.sql(PACKAGE).is_queue():
                raise NoEventQueue(queue=str(path))
    except DatabaseDamaged as error:
        if "file is not a database" in str(error):  # not a damaged one
            raise NoEventQueue(queue=str(path)) from error
        raise
    finally:
        schema.close()
