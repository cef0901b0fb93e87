"""What every metric keeps, whatever happens, from one scrape to the next."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import Metric

Series = dict[tuple[str, tuple[str, ...]], float]


def series(families: Iterable[Metric]) -> Series:
    """All samples, each series once."""
    found: Series = {}
    for family in families:
        for sample in family.samples:
            key = sample.name, tuple(sample.labels.values())
            assert key not in found, key
            found[key] = sample.value
    return found


def check(before: Series, after: Series) -> None:
    """Nothing is negative, shares are at most 1, counters never fall, percentiles are in order."""
    for (name, labels), value in after.items():
        assert value >= 0, (name, labels, value)
        if name.endswith(("_ratio", "_rate")):
            assert value <= 1, (name, labels, value)
        if name.endswith(("_total", "_count", "_sum")):
            assert value >= before.get((name, labels), 0), (name, labels)
        if name.endswith("_p50_ms"):
            base = name.removesuffix("_p50_ms")
            assert value <= after[f"{base}_p95_ms", labels] <= after[f"{base}_p99_ms", labels]
