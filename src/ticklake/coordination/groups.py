"""Which table the indexers of a consumer group fill: all of them the same one, or each would get a part of the run."""

from __future__ import annotations

import logging

from ticklake.coordination.coordinator import PACKAGE
from ticklake.coordination.errors import GroupFillsAnotherTable
from ticklake.coordination.target import IdAt, Target
from ticklake.topics import Run

log = logging.getLogger(__name__)


def bind(run: Run, topic: str, group: str, indexer_class: str, table: Target, id_at: IdAt) -> None:
    """Records that the group fills this table, or raises `GroupFillsAnotherTable`.

    A table that was made anew in the place of the one recorded takes over from it. A table that was moved goes on; a
    copy, whose original is still there, is another table although it has the same id.
    """
    run.prepare(PACKAGE)
    values = {"topic": topic, "group": group, "indexer_class": indexer_class, **table._asdict()}
    while True:
        with run.reading() as transaction:
            before = [tuple(row) for row in transaction.sql(PACKAGE).group_table(topic=topic, group=group)]
        # Outside of any transaction: a file system that does not answer must not hold the lock of the database.
        copied = any(table.is_copy_of(Target(*place), id_at) for _, *place in before)
        with run.transaction() as transaction:
            sql = transaction.sql(PACKAGE)
            sql.bind_group(**values)
            ((bound_class, *place),) = sql.bound_group(topic=topic, group=group)
            bound = Target(*place)
            if (bound_class, *bound) != (before[0] if before else (indexer_class, *table)):
                continue
            same = bound.table_id == table.table_id and bool(table.table_id or bound_class == indexer_class)
            if same and bound == table:
                return
            if copied or not (same or table.replaces(bound)):
                filled = _filled(bound, bound_class, table, copied)
                raise GroupFillsAnotherTable(topic=topic, group=group, run_id=run.id, filled=filled)
            sql.move_group(**values)
            break
    if not same:
        log.info(
            "%s was made anew: %s fills it from here on; `ticklake index` fills in the rest", table.location, group
        )


def _filled(bound: Target, bound_class: str, table: Target, copied: bool) -> str:
    """What the group fills, and how the table that was refused looks like it."""
    if not bound.location:
        return f"no table, for {bound_class}"
    if copied:
        return f"{bound.place}, of which {table.location} is a copy"
    return f"{bound.place}; this is {table.host}" if bound.location == table.location else bound.place


def release(run: Run, topic: str, group: str) -> Target | None:
    """Forgets which table a group fills, and returns it: the next indexer of the group that starts says it anew."""
    if not run.has_tables_of(PACKAGE):
        return None
    run.prepare(PACKAGE)
    with run.transaction() as transaction:
        rows = transaction.sql(PACKAGE).release_group(topic=topic, group=group)
    return Target(*rows[0][1:]) if rows else None
