"""Benchmarks can be loaded, and the one that fills a topic by plain SQL fits the schema of today."""

from __future__ import annotations

import importlib

import pytest
from bench.__main__ import BENCHMARKS
from bench.topics import claim_costs

from ticklake.topics import Run


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_has_a_function_that_measures(name: str) -> None:
    assert callable(importlib.import_module(f"bench.{name}").measure)


def test_a_topic_filled_by_sql_delivers_as_if_it_had_been_sent(run: Run) -> None:
    costs = claim_costs(run, 5)
    assert set(costs) == {"stored", "acknowledged, the first one open"}
    # 5 filled and 300 sent; 300 polls each: `acked` has the first one open, and acknowledged the other four.
    assert {group.group: group.lag for group in run.groups.list()} == {"fresh": 305, "acked": 301}
