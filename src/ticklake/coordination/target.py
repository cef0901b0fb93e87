"""The table that an indexer fills, by its own id and not its path: a table that is made anew is another one."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import NamedTuple


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


NO_TABLE = Target()
