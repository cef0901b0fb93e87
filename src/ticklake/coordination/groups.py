"""Binds a consumer group to one table. With two tables, each would get only a part of the run."""

from __future__ import annotations

import logging
from typing import NamedTuple

from ticklake.coordination.coordinator import PACKAGE
from ticklake.coordination.errors import GroupFillsAnotherTable
from ticklake.coordination.target import IdAt, Target
from ticklake.database import Transaction
from ticklake.topics import Run

log = logging.getLogger(__name__)


def bind(run: Run, topic: str, group: str, indexer_class: str, table: Target, id_at: IdAt) -> None:
    """Records that the group fills this table, or raises `GroupFillsAnotherTable`.

    A new table at the recorded location replaces the recorded one. A moved table stays bound. A copy whose original
    still exists is another table, although it has the same id.
    """
    run.prepare(PACKAGE)
    values = {"topic": topic, "group": group, "indexer_class": indexer_class, **table._asdict()}
    while True:
        with run.reading() as transaction:
            before = [tuple(row) for row in transaction.sql(PACKAGE).group_table(topic=topic, group=group)]
        # Outside of a transaction: a slow file system must not hold the database lock.
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
            "%s is a new table: %s fills it from now on; `ticklake index` adds the earlier ticks", table.location, group
        )


class BoundGroup(NamedTuple):
    """A consumer group and the table that it fills."""

    topic: str
    group: str
    table: Target

    def is_bound(self, transaction: Transaction) -> bool:
        """Returns whether the group still fills this table. It stays so until the transaction ends."""
        rows = transaction.sql(PACKAGE).bound_group(topic=self.topic, group=self.group)
        return [Target(*place) for _, *place in rows] == [self.table]


def groups_of_table(run: Run, table: Target, id_at: IdAt) -> list[BoundGroup]:
    """Returns the groups that fill this very table, which may have been moved on this machine, but not a copy of it."""
    if not table.table_id or not run.has_tables_of(PACKAGE):
        return []
    run.prepare(PACKAGE)
    with run.reading() as transaction:
        rows = transaction.sql(PACKAGE).groups_of_table(table_id=table.table_id)
    found = [BoundGroup(topic, group, Target(*place)) for topic, group, *place in rows]
    return [one for one in found if one.table.host == table.host and not table.is_copy_of(one.table, id_at)]


def _filled(bound: Target, bound_class: str, table: Target, copied: bool) -> str:
    """Describes the table that the group fills, and how it differs from the refused table."""
    if not bound.location:
        return f"no table, for {bound_class}"
    if copied:
        return f"{bound.place}, of which {table.location} is a copy"
    return f"{bound.place}; this is {table.host}" if bound.location == table.location else bound.place


def unbind(run: Run, topic: str, group: str) -> Target | None:
    """Removes the record of the table that a group fills, and returns it. The next indexer records its own table."""
    if not run.has_tables_of(PACKAGE):
        return None
    run.prepare(PACKAGE)
    with run.transaction() as transaction:
        rows = transaction.sql(PACKAGE).unbind_group(topic=topic, group=group)
    return Target(*rows[0][1:]) if rows else None
