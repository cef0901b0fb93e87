"""Types of columns: how a Delta table stores them, and which Arrow types it returns unchanged."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import pyarrow as pa
from deltalake import Schema

_types = pa.types
_NESTED = (
    *(_types.is_list, _types.is_large_list, _types.is_fixed_size_list, _types.is_list_view, _types.is_large_list_view),
    *(_types.is_struct, _types.is_map),
)


def leaves(kind: pa.DataType) -> int:
    """Returns the number of Parquet columns of a column of this type."""
    return sum(leaves(kind.field(place).type) for place in range(kind.num_fields)) or 1


def unfit_types(kind: pa.DataType) -> Iterator[pa.DataType]:
    """Yields the type and its inner types that a Delta table does not return unchanged."""
    return filter(_is_unfit, _parts(kind))


def _is_unfit(kind: pa.DataType) -> bool:
    """Returns True if a Delta table cannot store this type or does not return it unchanged.

    Unsigned integers become signed ones of the same width, and date64 loses its time of day. Null columns and other
    timestamps are Delta features that not all engines support. Parquet has no structs without fields.
    """
    if any(is_kind(kind) for is_kind in _NESTED):
        return not kind.num_fields
    if _types.is_null(kind) or (_types.is_timestamp(kind) and (kind.unit, kind.tz) != ("us", "UTC")):
        return True
    try:
        back = pa.schema(Schema.from_arrow(pa.schema([("value", kind)])).to_arrow())
    except Exception:
        # delta-rs raises plain exceptions here.
        return True
    return bool(back.field("value").type != _plain(kind))


def _plain(kind: pa.DataType) -> pa.DataType:
    """Returns the type in Arrow's standard layout, which is how a Delta table returns it."""
    if _types.is_dictionary(kind):
        return _plain(kind.value_type)
    if _types.is_large_string(kind) or _types.is_string_view(kind):
        return pa.string()
    if _types.is_large_binary(kind) or _types.is_binary_view(kind) or _types.is_fixed_size_binary(kind):
        return pa.binary()
    return kind


def _parts(kind: pa.DataType) -> Iterator[pa.DataType]:
    """Yields a type and all its inner types."""
    yield kind
    for place in range(kind.num_fields):
        yield from _parts(kind.field(place).type)


def columns_of(schema: Schema, nullable: Collection[str]) -> list[str]:
    """Returns names and types as the table stores them. Delta has fewer types than Arrow.

    For the columns in `nullable`, which may get nulls, the type also says if the table forbids nulls.
    """
    fields = [json.loads(field.to_json()) for field in schema.fields]
    return [f"{field['name']} {_type(field, nullable)}" for field in fields]


def _type(field: Mapping[str, Any], nullable: Collection[str]) -> str:
    forbids = not field["nullable"] and field["name"] in nullable
    return json.dumps(field["type"]).strip('"') + (" not null" if forbids else "")
