"""The table that an indexer fills, by its own id and not its path: a table that is made anew is another one."""

from __future__ import annotations

import platform
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ticklake.checks.places import local_path

IdAt = Callable[[Path], str | None]
"""Returns the id of the table in a folder; None if there is none."""


class Target(NamedTuple):
    """A table by its id, and where it was seen. An indexer that writes no table has none: its id is empty."""

    table_id: str = ""
    location: str = ""
    host: str = ""

    @classmethod
    def at(cls, table_id: str, directory: Path) -> Target:
        return cls(table_id, directory.absolute().as_uri(), platform.node())

    def replaces(self, other: Target) -> bool:
        """Whether this table is where the other one was: on this machine, in the same folder."""
        return bool(self.location) and (self.location, self.host) == (other.location, other.host)

    def is_copy_of(self, other: Target, id_at: IdAt) -> bool:
        """Whether the other one is still there, in another folder that can be seen from here, with this one's id."""
        if self.table_id != other.table_id or not other.location or self.location == other.location:
            return False
        original = other.directory
        return id_at(original) == self.table_id and not original.samefile(self.directory)

    @property
    def directory(self) -> Path:
        return local_path(self.location, "A table")

    @property
    def place(self) -> str:
        """Where it was seen, as people call it."""
        return f"{self.location} on {self.host}"


NO_TABLE = Target()
