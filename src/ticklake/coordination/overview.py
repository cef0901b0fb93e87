"""The gaps and claims of a whole run, for all indexers and tables."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from ticklake.coordination.coordinator import PACKAGE
from ticklake.coordination.gaps import End
from ticklake.coordination.target import Target
from ticklake.ticks import TickRange
from ticklake.topics import Run

_LIMIT = 100_000
_PAGE = 5_000


class RecordedGap(NamedTuple):
    """A gap of one indexer class and table; `age_ms` is the time since it was detected."""

    indexer_class: str
    table_id: str
    ticks: TickRange
    status: str
    age_ms: int


class RecordedTable(NamedTuple):
    """A table that an indexer has registered: the indexers of a consumer group, or else those of a coordinator.

    `step` and `last_tick` are the sampling interval and the end of the run, if the coordinator knows them.
    """

    indexer_class: str
    group: str
    table: Target
    step: int | None
    last_tick: int | None


def recorded_tables(run: Run) -> list[RecordedTable]:
    """Returns the tables of all indexers of a run. Creates no database tables."""
    if not run.has_tables_of(PACKAGE):
        return []
    run.prepare(PACKAGE)
    with run.reading() as transaction:
        rows = transaction.sql(PACKAGE).recorded_tables()
    return [RecordedTable(kind, group, Target(*rest[:3]), *rest[3:]) for kind, group, *rest in rows]


def recorded_gaps(run: Run, tables: Collection[str] | None = None) -> list[RecordedGap]:
    """Returns the gaps of the tables with these ids. Default: all tables. Creates no database tables."""
    if not run.has_tables_of(PACKAGE):
        return []
    run.prepare(PACKAGE)
    ids = None if tables is None else json.dumps(list(tables))
    with run.reading() as transaction:
        rows = transaction.sql(PACKAGE).recorded_gaps(tables=ids, limit=_LIMIT)
        return [RecordedGap(kind, table, TickRange(first, last), *rest) for kind, table, first, last, *rest in rows]


def live_claims(run: Run) -> int:
    """Returns how many batches of a run indexers work on now. Creates no database tables."""
    if not run.has_tables_of(PACKAGE):
        return 0
    run.prepare(PACKAGE)
    with run.reading() as transaction:
        ((count,),) = transaction.sql(PACKAGE).live_claims()
    return int(count)


class FilesLeft(NamedTuple):
    """The names of batch files that are not completed. Failed files do not count.

    `in_work` is the number of those that an indexer works on now.
    """

    names: list[str]
    in_work: int


def files_left(run: Run, indexer_class: str, table: Target, names: Sequence[str]) -> FilesLeft:
    """Returns which of these files were never claimed, and all that are claimed. Creates no tables."""
    if not run.has_tables_of(PACKAGE):
        return FilesLeft(list(names), 0)
    run.prepare(PACKAGE)
    key = {"indexer_class": indexer_class, "table_id": table.table_id}
    with run.reading() as transaction:
        sql = transaction.sql(PACKAGE)
        left = [name for page in _pages(names) for (name,) in sql.never_claimed(**key, filenames=json.dumps(page))]
        claimed = list(sql.claimed_batches(**key))
    return FilesLeft(left + [name for name, _ in claimed], sum(bool(live) for _, live in claimed))


def recorded_end(run: Run, indexer_class: str, table: Target) -> End:
    """Returns the end of a run as the coordinator of this table knows it. Creates no tables."""
    if not run.has_tables_of(PACKAGE):
        return End()
    run.prepare(PACKAGE)
    with run.reading() as transaction:
        rows = transaction.sql(PACKAGE).known_end(indexer_class=indexer_class, table_id=table.table_id)
    return next((End.stored(*row) for row in rows), End())


def _pages(names: Sequence[str]) -> Iterator[list[str]]:
    return (list(names[start : start + _PAGE]) for start in range(0, len(names), _PAGE))


def completed_batches(run: Run) -> int:
    """Returns the number of completed batch files of the table that has most of them. Creates no database tables."""
    if not run.has_tables_of(PACKAGE):
        return 0
    run.prepare(PACKAGE)
    with run.reading() as transaction:
        ((completed,),) = transaction.sql(PACKAGE).completed_batches()
        return int(completed or 0)
