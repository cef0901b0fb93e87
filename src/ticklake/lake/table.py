"""What a table of the lake looks like."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from deltalake import Schema

from ticklake.errors import BadTable

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")

_types = pa.types
_KEYS = (
    *(_types.is_integer, _types.is_boolean, _types.is_date, _types.is_decimal, _types.is_timestamp),
    *(_types.is_string, _types.is_large_string, _types.is_binary, _types.is_large_binary, _types.is_fixed_size_binary),
)
_NESTED = (
    *(_types.is_list, _types.is_large_list, _types.is_fixed_size_list, _types.is_list_view, _types.is_large_list_view),
    *(_types.is_struct, _types.is_map),
)
_INSTEAD = "use signed integers, float32 or float64, decimal128, date32, and timestamps in microseconds of UTC"


def _is_unfit(kind: pa.DataType) -> bool:
    """Whether a column of this type cannot be stored, or does not come back from a Delta table as it was.

    An unsigned number comes back as a signed one of the same width, and a date64 without its time of day. Delta has
    nulls and other timestamps only as features that not all engines know, and Parquet no struct without a field.
    """
    if any(is_kind(kind) for is_kind in _NESTED):
        return not kind.num_fields
    if _types.is_null(kind) or (_types.is_timestamp(kind) and (kind.unit, kind.tz) != ("us", "UTC")):
        return True
    try:
        back = pa.schema(Schema.from_arrow(pa.schema([("value", kind)])).to_arrow())
    except Exception:
        # delta-rs raises no error of its own here.
        return True
    return bool(back.field("value").type != _plain(kind))


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type with the same values in Arrow's usual layout, which is the one that comes back."""
    if _types.is_dictionary(kind):
        return _plain(kind.value_type)
    if _types.is_large_string(kind) or _types.is_string_view(kind):
        return pa.string()
    if _types.is_large_binary(kind) or _types.is_binary_view(kind) or _types.is_fixed_size_binary(kind):
        return pa.binary()
    return kind


def _parts(kind: pa.DataType) -> Iterator[pa.DataType]:
    """A type and all that it is made of."""
    yield kind
    for place in range(kind.num_fields):
        yield from _parts(kind.field(place).type)


def is_table_name(name: str) -> bool:
    """Made of a-z, 0-9 and _, from a letter on."""
    return _NAME.fullmatch(name) is not None


@dataclass(frozen=True)
class Table:
    """A table's name, schema and natural key. Rows are kept in the order of the key.

    The first column of the key is the ledger's: an int64 whose values are written whole or not at all, as ticks are.
    The others are integers, strings, dates, timestamps, decimals, binary or boolean values, never null.
    """

    name: str
    schema: pa.Schema
    key: tuple[str, ...]

    def __post_init__(self) -> None:
        if not is_table_name(self.name):
            raise BadTable(name=self.name, reason="a name is made of a-z, 0-9 and _, and starts with a letter")
        if not self.key:
            raise BadTable(name=self.name, reason="it needs a key, which starts with tick_number")
        if missing := [column for column in self.key if column not in self.schema.names]:
            raise BadTable(name=self.name, reason=f"its key names {missing[0]!r}, which is no column of it")
        if len(set(self.schema.names)) < len(self.schema.names):
            raise BadTable(name=self.name, reason="two of its columns have the same name")
        if self.schema.field(self.ordinal).type != pa.int64():
            raise BadTable(name=self.name, reason=f"{self.ordinal}, the first column of its key, must be an int64")
        for column in self.schema:
            # A struct without fields is as false as None.
            for unfit in filter(_is_unfit, _parts(column.type)):
                reason = f"{column.name} is {column.type}, and a Delta table has no {unfit}; {_INSTEAD}"
                raise BadTable(name=self.name, reason=reason)
        for name in self.key:
            if not any(fits(self.schema.field(name).type) for fits in _KEYS):
                reason = (
                    f"{name} is {self.schema.field(name).type}, whose values cannot be told apart for certain in a key"
                )
                raise BadTable(name=self.name, reason=reason)

    @property
    def ordinal(self) -> str:
        return self.key[0]
