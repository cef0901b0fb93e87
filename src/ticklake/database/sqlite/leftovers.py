"""Finds what foreign statements leave in a connection: temporary tables, and attached databases."""

from __future__ import annotations

import apsw

from ticklake.database.errors import TableHidden
from ticklake.database.statements import statements

_OWN = "ticklake.database"


def has_leftovers(connection: apsw.Connection) -> bool:
    """Returns whether there are temporary tables or attached databases. The next transaction would see them."""
    temporary = connection.execute(statements(_OWN, "sqlite")["find_temporary"]).fetchall()
    return bool(temporary) or len(connection.db_names()) > 2


def check_hidden(connection: apsw.Connection, run_id: str) -> None:
    """Raises `TableHidden` if a temporary table hides another one. Rows for that one may be in the temporary table."""
    for (name,) in connection.execute(statements(_OWN, "sqlite")["find_hidden"]).fetchall():
        raise TableHidden(run_id=run_id, table=str(name))
