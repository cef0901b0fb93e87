"""Every metric is documented, every name the seeds have is there, dashboard and alerts use none that is not."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from ticklake.metric_names import METRICS

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
SEEDS = ROOT.parent / "shared" / "seeds"
KNOWN = {metric.name for metric in METRICS}

# The names in the seeds' code that mean the same as another of theirs, or belong to H2 or Java.
OTHERWISE = {
    "messages_written_per_sec": "write_throughput_per_sec",
    "messages_read_per_sec": "read_throughput_per_sec",
    "h2_pool_active_connections": "pool_active_connections",
    "h2_pool_idle_connections": "pool_idle_connections",
    "h2_pool_total_connections": "pool_total_connections",
    "h2_pool_threads_awaiting": "pool_waiting_connections",
    "parent_messages_published": "messages_published",
    "parent_messages_received": "messages_received",
    "parent_messages_acknowledged": "messages_acknowledged",
    "claims_per_sec": "claim_successes",
    "claims_window_total": "claim_successes",
    "claim_attempts_total": "claim_attempts",
    "error_count": "errors",
    "h2_active_connections": "pool_active_connections",
    "h2_idle_connections": "pool_idle_connections",
    "rows_inserted": "rows_written",
    "h2_queries_per_sec": "queries_executed",
}
# What only the database itself can tell, and does: SQLite has no server, PostgreSQL has its pg_stat views.
OF_THE_DATABASE = {
    "h2_disk_writes_per_sec", "h2_cache_hits", "h2_cache_misses", "h2_cache_hit_ratio",
}  # fmt: skip
NAMED = """
    messages_published messages_received messages_acknowledged write_throughput_per_sec read_throughput_per_sec
    stuck_messages_reassigned messages_sent write_errors read_errors ack_errors stale_acks_rejected claim_conflict_ratio
    claim_attempts claim_successes claim_success_rate batches_completed batches_failed gaps_pending gaps_released
    try_claim_latency mark_completed_latency has_gap_before_latency metadata_reads metadata_not_found
    get_metadata_latency has_metadata_latency current_buffer_size claimed_batches_pending permanent_gaps_detected
    batches_processed ticks_processed cells_observed organisms_observed
"""


def samples() -> set[str]:
    """Every name that `/metrics` can have of ours."""
    latency = ("_p50_ms", "_p95_ms", "_p99_ms", "_avg_ms", "_seconds_bucket", "_seconds_count", "_seconds_sum")
    endings = {"counter": ("_total",), "gauge": ("",), "latency": latency}
    return {metric.scope.family(metric.name) + ending for metric in METRICS for ending in endings[metric.kind]}


def test_the_page_has_exactly_the_metrics_there_are() -> None:
    page = (DOCS / "monitoring.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(ticklake_\w+)` \| (\w+) \| (.+) \|$", page, re.MULTILINE)
    assert rows == [
        (metric.scope.family(metric.name), metric.kind, metric.help) for metric in sorted(METRICS, key=_page_order)
    ]


def _page_order(metric) -> int:
    order = ["node", "service", "topics", "writer", "reader", "group", "run", "coordinated", "backlog"]
    return order.index(metric.scope.name)


def test_no_two_metrics_have_one_name() -> None:
    assert len({metric.scope.family(metric.name) for metric in METRICS}) == len(METRICS)
    assert all(metric.help.endswith(".") for metric in METRICS)


def counted() -> Iterator[str]:
    """The metrics that the code of a node's services asks for by name."""
    for package in ("services", "indexers", "coordination", "topics"):
        for path in (ROOT / "src" / "ticklake" / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                    name = node.args[0]
                    if node.func.attr in ("counter", "gauge", "window", "percentiles") and isinstance(
                        name, ast.Constant
                    ):
                        yield str(name.value)


def test_whatever_is_counted_is_in_the_table() -> None:
    assert set(counted()) - KNOWN == set()


def test_every_metric_the_seeds_ask_for_is_there() -> None:
    assert set(NAMED.split()) - KNOWN == set()


def test_every_metric_in_the_seeds_own_code_is_there_or_has_a_counterpart() -> None:
    if not SEEDS.is_dir():
        pytest.skip("the seeds are not here")
    text = "\n".join(path.read_text(encoding="utf-8") for path in SEEDS.glob("00[0-3]*.txt"))
    names = set(re.findall(r'metrics\.put\("(\w+)"', text))
    plain = {re.sub(r"_(p\d\d|avg)_(ms|ns)$", "", name) for name in names}
    assert names
    assert {OTHERWISE.get(name, name) for name in plain} - KNOWN == OF_THE_DATABASE


def test_dashboard_and_alerts_use_only_metrics_that_exist() -> None:
    dashboard = json.loads((DOCS / "monitoring" / "dashboard.json").read_text(encoding="utf-8"))
    rules = yaml.safe_load((DOCS / "monitoring" / "alerts.yml").read_text(encoding="utf-8"))
    shown = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    alerts = [rule for group in rules["groups"] for rule in group["rules"]]
    watched = [rule["expr"] for rule in alerts]
    used = {name for text in [*shown, *watched] for name in re.findall(r"ticklake_\w+", text)}
    assert len(used) > 20
    assert used - samples() == set()
    assert all(
        {"summary", "remedy"} == set(rule["annotations"]) for group in rules["groups"] for rule in group["rules"]
    )
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
