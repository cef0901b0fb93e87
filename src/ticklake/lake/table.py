"""The name, schema and key of a table."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa

from ticklake.lake.cells import ALL
from ticklake.lake.delta import unfit_types
from ticklake.lake.errors import BadTable

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")

_types = pa.types
_KEYS = (
    *(_types.is_integer, _types.is_boolean, _types.is_date, _types.is_decimal, _types.is_timestamp),
    *(_types.is_string, _types.is_large_string, _types.is_binary, _types.is_large_binary, _types.is_fixed_size_binary),
)
_INSTEAD = "use signed integers, float32, float64, decimal128, date32, or timestamps in microseconds UTC"


def is_table_name(name: str) -> bool:
    """Returns True if the name has only a-z, 0-9 and _, and starts with a letter."""
    return _NAME.fullmatch(name) is not None


@dataclass(frozen=True)
class Table:
    """A table's name, schema and natural key. Rows are kept in the order of the key.

    The first column of the key is an int64 such as `tick_number`: all rows of one value are written, or none. The
    others are integers, strings, dates, timestamps, decimals, binary or boolean values, never null.
    """

    name: str
    schema: pa.Schema
    key: tuple[str, ...]
    version: int = 1
    """The version of the schema. A table of an older one gets the columns that were appended since, as null."""
    cells: str = ALL
    """Of which ticks it has the cells, if it is a table of cells."""

    def __post_init__(self) -> None:
        if not is_table_name(self.name):
            raise BadTable(name=self.name, reason="a name has only a-z, 0-9 and _, and starts with a letter")
        if not self.key:
            raise BadTable(name=self.name, reason="it needs a key, which starts with tick_number")
        if missing := [column for column in self.key if column not in self.schema.names]:
            raise BadTable(name=self.name, reason=f"its key names {missing[0]!r}, which is not one of its columns")
        if len(set(self.schema.names)) < len(self.schema.names):
            raise BadTable(name=self.name, reason="two of its columns have the same name")
        if self.schema.field(self.ordinal).type != pa.int64():
            raise BadTable(name=self.name, reason=f"{self.ordinal}, the first column of its key, must be an int64")
        for column in self.schema:
            for unfit in unfit_types(column.type):
                reason = f"{column.name} is {column.type}, and Delta tables do not support {unfit}; {_INSTEAD}"
                raise BadTable(name=self.name, reason=reason)
        for name in self.key:
            if not any(fits(self.schema.field(name).type) for fits in _KEYS):
                reason = f"{name} is {self.schema.field(name).type}, which cannot be compared exactly in a key"
                raise BadTable(name=self.name, reason=reason)

    @property
    def ordinal(self) -> str:
        """The first column of the key. The ledger records which of its values the table has."""
        return self.key[0]
