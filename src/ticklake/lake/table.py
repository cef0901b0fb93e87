"""What a table of the lake looks like."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa

from ticklake.errors import BadTable

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")


@dataclass(frozen=True)
class Table:
    """A table's name, schema and natural key. Rows are kept in the order of the key.

    The first column of the key is the ledger's: an int64 whose values are written whole or not at all, as ticks are.
    """

    name: str
    schema: pa.Schema
    key: tuple[str, ...]

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise BadTable(name=self.name, reason="a name is made of a-z, 0-9 and _, and starts with a letter")
        if not self.key:
            raise BadTable(name=self.name, reason="it needs a key, which starts with tick_number")
        if missing := [column for column in self.key if column not in self.schema.names]:
            raise BadTable(name=self.name, reason=f"its key names {missing[0]!r}, which is no column of it")
        if self.schema.field(self.ordinal).type != pa.int64():
            raise BadTable(name=self.name, reason=f"{self.ordinal}, the first column of its key, must be an int64")

    @property
    def ordinal(self) -> str:
        return self.key[0]
