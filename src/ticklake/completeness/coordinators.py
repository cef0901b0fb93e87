"""Finds the coordinator of a table."""

from __future__ import annotations

from collections.abc import Collection

from ticklake.completeness.messages import Messages
from ticklake.completeness.tables import Tables
from ticklake.coordination import NO_TABLE, Coordinator, Target, frontiers


class Coordinators:
    """Finds coordinators in the databases that have the run."""

    def __init__(self, messages: Messages, tables: Tables, step: int) -> None:
        self._messages, self._tables, self._step = messages, tables, step

    def of(self, table: str) -> Coordinator | None:
        """Returns the coordinator of a table; None if there is none."""
        kind, id_ = self._tables.indexer(table), self._tables.id(table)
        for run in self._messages.runs:
            if found := recorded_indexer(frontiers(run), id_, kind.__name__ if kind is not None else None):
                indexer_class, target = found
                return Coordinator(run, indexer_class, step=self._step, table=target)
        return None


def recorded_indexer(
    known: Collection[tuple[str, str]], table_id: str, builtin: str | None
) -> tuple[str, Target] | None:
    """Returns the indexer class that fills a table, and the table as recorded; None if there is no record.

    `known` are the recorded classes and table ids. `builtin` is the built-in indexer of this table, if there is one.
    """
    for indexer_class, id_ in known:
        if id_ and id_ == table_id:
            return indexer_class, Target(table_id)
    # Old records have no table id until their indexer starts again.
    if builtin is not None and (builtin, NO_TABLE.table_id) in known:
        return builtin, NO_TABLE
    return None
