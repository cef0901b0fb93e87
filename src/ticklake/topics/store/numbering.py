"""Transaction numbers after a restore into another PostgreSQL server.

Messages and positions contain transaction numbers of the server that wrote them (`xid`, `seen`). On a server with lower
numbers, every old message looks newer than any snapshot: each claim reads all of them, and the lag of a group that
starts at the end counts them.
"""

from __future__ import annotations

from ticklake.database import Schema, Transaction
from ticklake.database.versions import package_versions
from ticklake.topics.store.store import PACKAGE


def has_foreign_numbers(schema: Schema) -> bool:
    """Returns whether the run has transaction numbers that its server has not used yet. Changes nothing.

    Tables of an older version are upgraded, and then checked, when the run is next opened.
    """
    versions = package_versions(schema) if schema.dialect == "postgres" else []
    if not any(found.package == PACKAGE and found.state == "current" for found in versions):
        return False
    with schema.reading() as transaction:
        return foreign_numbers_in(transaction)


def foreign_numbers_in(transaction: Transaction) -> bool:
    """Like `has_foreign_numbers`, for tables of the current version."""
    ((found,),) = transaction.sql(PACKAGE).foreign_numbers()
    return bool(found)


def replace(transaction: Transaction) -> int | None:
    """Replaces all numbers and returns the number of changed messages. Every group still gets the same messages.

    Returns None if another process has already done it.
    """
    sql = transaction.sql(PACKAGE)
    sql.lock_joining()
    sql.lock_all_groups()
    if not foreign_numbers_in(transaction):
        return None
    ((messages,),) = sql.renumber()
    return int(messages)
