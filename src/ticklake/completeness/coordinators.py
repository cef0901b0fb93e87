"""The coordinators of a run: which one is at work on a table."""

from __future__ import annotations

from collections.abc import Collection

from ticklake.completeness.messages import Messages
from ticklake.completeness.tables import Tables, indexer_of
from ticklake.coordination import NO_TABLE, Coordinator, Target, frontiers


class Coordinators:
    """Finds coordinators in the databases that have the run."""

    def __init__(self, messages: Messages, tables: Tables, step: int) -> None:
        self._messages, self._tables, self._step = messages, tables, step

    def of(self, table: str) -> Coordinator | None:
        """The coordinator at work on a table; None if there is none."""
        kind, id_ = indexer_of(table), self._tables.id(table)
        for run in self._messages.runs:
            if found := at_work(frontiers(run), id_, kind.__name__ if kind is not None else None):
                indexer_class, target = found
                return Coordinator(run, indexer_class, step=self._step, table=target)
        return None


def at_work(known: Collection[tuple[str, str]], table_id: str, builtin: str | None) -> tuple[str, Target] | None:
    """The indexer class that fills a table, and the table as its records name it; None if no record is the table's.

    `known` are the classes and table ids on record; `builtin` is the class that comes with TickLake for this table.
    """
    for indexer_class, id_ in known:
        if id_ and id_ == table_id:
            return indexer_class, Target(table_id)
    # Records from before tables had ids have none until their indexer is next started.
    if builtin is not None and (builtin, NO_TABLE.table_id) in known:
        return builtin, NO_TABLE
    return None
