"""The table that an indexer fills. Its id identifies it, not its path: a recreated table is another table."""

from __future__ import annotations

import platform
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ticklake.checks.places import local_path

IdAt = Callable[[Path], str | None]
"""Returns the id of the table in a folder; None if there is none."""


class Target(NamedTuple):
    """The id and the location of a table. All fields are empty for an indexer without a table."""

    table_id: str = ""
    location: str = ""
    host: str = ""

    @classmethod
    def at(cls, table_id: str, directory: Path) -> Target:
        return cls(table_id, directory.absolute().as_uri(), platform.node())

    def replaces(self, other: Target) -> bool:
        """Returns whether this table is at the location of the other one, on the same machine."""
        return bool(self.location) and (self.location, self.host) == (other.location, other.host)

    def is_copy_of(self, other: Target, id_at: IdAt) -> bool:
        """Returns whether the other table still exists in another folder, visible from here, with the same id."""
        if self.table_id != other.table_id or not other.location or self.location == other.location:
            return False
        original = other.directory
        return id_at(original) == self.table_id and not original.samefile(self.directory)

    @property
    def directory(self) -> Path:
        return local_path(self.location, "A table")

    @property
    def place(self) -> str:
        """The location and the machine, for messages."""
        return f"{self.location} on {self.host}"


NO_TABLE = Target()
