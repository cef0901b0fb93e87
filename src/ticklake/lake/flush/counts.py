"""Checks the counts that an indexer returns from `observe`. Their names must not collide with built-in metrics."""

from __future__ import annotations

import re
from collections.abc import Mapping
from numbers import Integral

from ticklake.lake.errors import BadCount
from ticklake.metric_names import METRICS, SERVICE

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_COUNTED_BY_INDEXERS = {"cells_observed", "organisms_observed"}
_OURS = {metric.name for metric in METRICS if metric.scope is SERVICE} - _COUNTED_BY_INDEXERS | {"error_count"}
_DERIVED = ("_total", "_created", "_count", "_sum", "_bucket", "_info", "_seconds", "_ms")
"""Endings that Prometheus or our latencies add to a name."""


def checked_counts(counts: Mapping[str, int]) -> dict[str, int]:
    """Returns the counts as integers. Raises `BadCount` if one cannot become a metric."""
    for name, count in counts.items():
        if not _NAME.fullmatch(str(name)) or name in _OURS or name.endswith(_DERIVED):
            raise BadCount(name=name, count=count, reason="the name must be like trades_seen, not a built-in metric")
        if not isinstance(count, Integral) or count < 0:
            raise BadCount(name=name, count=count, reason="a count must be an integer, 0 or more")
    return {name: int(count) for name, count in counts.items()}
