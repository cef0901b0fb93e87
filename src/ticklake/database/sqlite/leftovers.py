"""Finds what foreign statements leave in a connection: temporary tables, and attached databases."""

from __future__ import annotations

import apsw

from ticklake.database.errors import TableHidden

_TEMPORARY = "SELECT 1 FROM temp.sqlite_schema LIMIT 1"
_HIDDEN = """
SELECT t.name FROM temp.sqlite_schema AS t JOIN main.sqlite_schema AS m ON lower(m.name) = lower(t.name)
WHERE t.type IN ('table', 'view') AND m.type IN ('table', 'view') LIMIT 1"""


def has_leftovers(connection: apsw.Connection) -> bool:
    """Returns whether there are temporary tables or attached databases. The next transaction would see them."""
    return len(connection.db_names()) > 2 or bool(connection.execute(_TEMPORARY).fetchall())


def check_hidden(connection: apsw.Connection, run_id: str) -> None:
    """Raises `TableHidden` if a temporary table hides another one. Rows for that one may be in the temporary table."""
    for (name,) in connection.execute(_HIDDEN):
        raise TableHidden(run_id=run_id, table=name)
