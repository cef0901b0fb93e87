"""Mistakes in configurations that few people make, and keys that refer to themselves."""

from __future__ import annotations

from typing import Any

import pytest
from dateutil.relativedelta import relativedelta

from ticklake import errors
from ticklake.config.hocon.document import read
from ticklake.config.units import seconds, size


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (
            errors.BadBinding,
            'services { dummy-indexer { resources { t = "topic-read:batch-topic?consumerGroup=a&consumerGroup=b" } } }',
            "consumerGroup is given twice",
        ),
        (errors.ConfigSyntax, "vars { a = [1] { b = 2 } }", "only values of one kind can be concatenated"),
        (errors.TickLakeError, 'include "nowhere/else.conf"', "nowhere/else.conf"),
        (errors.BadValue, 'node { directory = " " }', "node.directory: must be a directory"),
        (
            errors.BadValue,
            "resources { other { class = Lake, path = other, spark = 5 } }",
            "resources.other.spark: must be a block in braces { }",
        ),
    ],
    ids=["group twice", "a list and a block", "no such folder", "no directory", "no block"],
)
def test_it_is_one_line_with_the_reason(load_text: Any, kind: type[Exception], text: str, reason: str) -> None:
    with pytest.raises(kind) as caught:
        load_text(text)
    assert reason in str(caught.value) and "\n" not in str(caught.value)


def test_a_key_that_refers_to_its_earlier_value_is_spelled_once(tmp_path: Any) -> None:
    file = tmp_path / "a.conf"
    file.write_text("vars { a = x }\nvars { a = ${vars.a}y }\n")
    assert list(read(file).spellings(("vars", "a"))) == ["x", "y"]


def test_a_size_in_minutes_is_refused() -> None:
    with pytest.raises(ValueError, match="m without quotes means minutes; write MiB or MB"):
        size(relativedelta(minutes=64))


def test_what_is_neither_a_number_nor_a_duration_is_left_to_the_next_check() -> None:
    assert seconds([1]) == [1]
