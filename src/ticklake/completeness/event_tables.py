"""Judges tables of events by their event queue. Batch files have no events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ticklake.completeness.contents import Contents
from ticklake.completeness.judging import judge_batches
from ticklake.completeness.tables import Tables
from ticklake.completeness.verdicts import TableVerdict
from ticklake.events.records import QueueRecords, differences
from ticklake.indexers.events import FIRST, QUEUE
from ticklake.indexers.events import TABLE as EVENTS


@dataclass(frozen=True)
class Queued:
    """The event batches of a run: the number of the `first` one, and the status of each in the queue.

    `others` are batches of other runs. `disagreements` are differences between queue and table.
    """

    first: int
    statuses: Mapping[int, str] = field(default_factory=dict)
    others: Sequence[int] = ()
    disagreements: list[str] = field(default_factory=list)


class EventTables:
    """Judges tables of events. Each must have every event batch of the run once."""

    def __init__(self, run_id: str, tables: Tables, queue: Path | None) -> None:
        """`queue` is the file of the event queue of the table `events`."""
        self._queue = QueueRecords.read(queue) if queue else None
        self._run_id, self._tables = run_id, tables

    def expected(self, only: Sequence[str]) -> list[str]:
        """Returns the table `events` if a queue was given, even if the table does not exist."""
        return [EVENTS.name] if self._queue is not None and (not only or EVENTS.name in only) else []

    def judge(self, table: str, *, count_rows: bool, deeply: bool) -> TableVerdict:
        """Returns the verdict on a table. With `deeply`, its files are checked too."""
        contents = self._tables.contents(table, count_rows=count_rows, with_properties=True)
        queued = compare_with_queue(self._queue, self._run_id, contents)
        damaged = self._tables.damaged(table) if deeply else {}
        flaws = contents.flaws + len(queued.disagreements) + len(damaged)
        return TableVerdict(
            table=table,
            step=1,
            coverage=judge_batches(contents.numbers, queued.statuses, flaws, first=queued.first, others=queued.others),
            rows=contents.rows,
            duplicated=contents.duplicated,
            duplicates=contents.duplicates,
            unreadable=contents.unreadable,
            unit="event batches",
            disagreements=queued.disagreements,
            damaged=damaged,
        )


def compare_with_queue(queue: QueueRecords | None, run_id: str, contents: Contents) -> Queued:
    """Compares a table with its queue. Without a queue, only the property of the table has the first batch."""
    first = int(contents.properties.get(FIRST, 1))
    if queue is None:
        return Queued(first)
    if contents.properties.get(QUEUE, queue.queue_id) != queue.queue_id:
        return Queued(first, disagreements=[f"its events are those of another queue than {queue.path}"])
    records, others = queue.of_run(run_id)
    assigned = [number for number, record in records.items() if record.run_id]
    # Without a table, only the queue knows the first batch of the run.
    first = min([first, *assigned]) if contents.properties else min(records, default=1)
    known = {number: record for number, record in records.items() if number >= first}
    statuses = {number: record.status for number, record in known.items()}
    return Queued(first, statuses, others, differences(known, contents.rows_by_number()))
