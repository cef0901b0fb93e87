"""The table that an indexer fills. Its id identifies it, not its path: a recreated table is another table."""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import NamedTuple

IdAt = Callable[[str, str], str | None]
"""Returns the id of the table at the first location; None if there is none, or if the second is the same place."""


class Target(NamedTuple):
    """The id and the location of a table. All fields are empty for an indexer without a table."""

    table_id: str = ""
    location: str = ""
    host: str = ""

    @classmethod
    def at(cls, table_id: str, location: str) -> Target:
        return cls(table_id, location, platform.node())

    def replaces(self, other: Target) -> bool:
        """Returns whether this table is at the location of the other one, on the same machine."""
        return bool(self.location) and (self.location, self.host) == (other.location, other.host)

    def is_copy_of(self, other: Target, id_at: IdAt) -> bool:
        """Returns whether the other table still exists in another place, visible from here, with the same id."""
        if self.table_id != other.table_id or not other.location or self.location == other.location:
            return False
        return id_at(other.location, self.location) == self.table_id

    @property
    def place(self) -> str:
        """The location and the machine, for messages."""
        return f"{self.location} on {self.host}"


NO_TABLE = Target()
