"""Types of columns: as a Delta table stores them, and which of Arrow's it returns unchanged."""

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
    """How many columns of a Parquet file a column of this type has."""
    return sum(leaves(kind.field(place).type) for place in range(kind.num_fields)) or 1


def unfit_types(kind: pa.DataType) -> Iterator[pa.DataType]:
    """The type and the types that it is made of, as far as a Delta table does not return them unchanged."""
    return filter(_is_unfit, _parts(kind))


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


def columns_of(schema: Schema, nullable: Collection[str]) -> list[str]:
    """Names and types as the table stores them: Delta has fewer types than Arrow.

    `nullable` are the columns that may get nulls, so that it matters if the table forbids them.
    """
    fields = [json.loads(field.to_json()) for field in schema.fields]
    return [f"{field['name']} {_type(field, nullable)}" for field in fields]


def _type(field: Mapping[str, Any], nullable: Collection[str]) -> str:
    forbids = not field["nullable"] and field["name"] in nullable
    return json.dumps(field["type"]).strip('"') + (" not null" if forbids else "")
