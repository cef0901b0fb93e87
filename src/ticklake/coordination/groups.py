"""Which table the indexers of a consumer group fill: all of them the same one, or each would get a part of the run."""

from __future__ import annotations

import logging

from ticklake.coordination.coordinator import PACKAGE
from ticklake.coordination.target import IdAt, Target
from ticklake.errors import GroupFillsAnotherTable
from ticklake.topics import Run

log = logging.getLogger(__name__)


def bind(run: Run, topic: str, group: str, indexer_class: str, table: Target, id_at: IdAt) -> None:
    """Records that the group fills this table, or raises `GroupFillsAnotherTable`.

    A table that was made anew in the place of the one recorded takes over from it. A table that was moved goes on; a
    copy, whose original is still there, is another table although it has the same id.
    """
    run.prepare(PACKAGE)
    with run.transaction() as transaction:
        sql = transaction.sql(PACKAGE)
        values = {"topic": topic, "group": group, "indexer_class": indexer_class, **table._asdict()}
        sql.bind_group(**values)
        ((bound_class, *place),) = sql.bound_group(topic=topic, group=group)
        bound = Target(*place)
        same = bound.table_id == table.table_id and bool(table.table_id or bound_class == indexer_class)
        if same and bound == table:
            return
        copied = table.is_copy_of(bound, id_at)
        if copied or not (same or table.replaces(bound)):
            filled = bound.place if bound.location else f"no table, for {bound_class}"
            filled += f", of which {table.location} is a copy" if copied else ""
            raise GroupFillsAnotherTable(topic=topic, group=group, run_id=run.id, filled=filled)
        sql.move_group(**values)
    if not same:
        log.info(
            "%s was made anew: %s fills it from here on; `ticklake index` fills in the rest", table.location, group
        )


def release(run: Run, topic: str, group: str) -> Target | None:
    """Forgets which table a group fills, and returns it: the next indexer of the group that starts says it anew."""
    if not run.has_tables_of(PACKAGE):
        return None
    run.prepare(PACKAGE)
    with run.transaction() as transaction:
        rows = transaction.sql(PACKAGE).release_group(topic=topic, group=group)
    return Target(*rows[0][1:]) if rows else None
