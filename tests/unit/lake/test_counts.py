"""What an indexer of one's own counts: nothing that would break or falsify a metric."""

from __future__ import annotations

import pytest

from ticklake.errors import BadCount
from ticklake.lake.flush.counts import checked_counts
from ticklake.metric_names import METRICS, SERVICE


def test_counts_with_names_of_their_own_are_taken_as_they_are() -> None:
    assert checked_counts({"trades_seen": 3, "cells_observed": 0}) == {"trades_seen": 3, "cells_observed": 0}


NOT_FREE = "errors state ticks_processed restarts flush flush_p50_ms flush_seconds seen_total error_count healthy"


@pytest.mark.parametrize("name", [*NOT_FREE.split(), "cells-seen", "", "Seen"])
def test_a_name_that_is_ours_or_that_no_metric_can_have_is_refused(name: str) -> None:
    with pytest.raises(BadCount):
        checked_counts({name: 1})


def test_no_metric_of_a_service_can_be_counted_by_an_indexer_but_what_indexers_count() -> None:
    ours = {metric.name for metric in METRICS if metric.scope is SERVICE}
    free = {name for name in ours if _is_taken(name)}
    assert free == {"cells_observed", "organisms_observed"}


@pytest.mark.parametrize("count", [-1, 0.5, float("nan")])
def test_a_count_that_is_no_whole_number_from_0_on_is_refused(count: float) -> None:
    with pytest.raises(BadCount):
        checked_counts({"seen": count})  # type: ignore[dict-item]


def _is_taken(name: str) -> bool:
    try:
        checked_counts({name: 1})
    except BadCount:
        return False
    return True
