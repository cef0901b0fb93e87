"""What a table of the lake looks like."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa

from ticklake.errors import BadTable

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")


@dataclass(frozen=True)
class Table:
    """A table's name, schema and natural key. Rows are kept in the order of the key, which starts with the tick."""

    name: str
    schema: pa.Schema
    key: tuple[str, ...]

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise BadTable(name=self.name, reason="a name is made of a-z, 0-9 and _, and starts with a letter")
        if not self.key or self.key[0] != "tick_number":
            raise BadTable(name=self.name, reason="its key must start with tick_number")
        if missing := [column for column in self.key if column not in self.schema.names]:
            raise BadTable(name=self.name, reason=f"its key names {missing[0]!r}, which is no column of it")
        if self.schema.field("tick_number").type != pa.int64():
            raise BadTable(name=self.name, reason="tick_number must be an int64")
