"""A null where a table allows none is the fault of one slice, and is told before anything is written."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ticklake.lake.task import _null_in

INNER = pa.field("x", pa.int64(), nullable=False)


@pytest.mark.parametrize(
    ("field", "values", "expected"),
    [
        (pa.field("a", pa.int64()), [1, None], None),
        (pa.field("a", pa.int64(), nullable=False), [1, None], "a"),
        (pa.field("a", pa.struct([INNER])), [{"x": 1}, None], None),
        (pa.field("a", pa.struct([INNER])), [{"x": 1}, {"x": None}], "a.x"),
        (pa.field("a", pa.list_(INNER)), [[1], None], None),
        (pa.field("a", pa.list_(INNER)), [[1, None]], "a[]"),
    ],
)
def test_a_null_that_is_not_allowed_is_found(field: pa.Field, values: list[object], expected: str | None) -> None:
    assert _null_in(pa.array(values, field.type), field, field.name) == expected
