"""The order in which services start."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from ticklake.config import load
from ticklake.config.order import ordered, start_order
from ticklake.config.templates import STARTER

NAMES = "abcdefg"


def test_who_takes_from_a_queue_or_topic_starts_before_who_fills_it() -> None:
    assert start_order(load(STARTER)) == [
        "completion-service", "metadata-indexer", "metadata-persistence-service", "environment-indexer",
        "organism-indexer", "persistence-service", "simulation", "reconciliation-service", "compaction-service",
    ]  # fmt: skip


def test_a_service_without_a_binding_has_the_only_resource_there_is(tmp_path: Path) -> None:
    file = tmp_path / "node.conf"
    file.write_text("""
        resources {
          db { class = Database, url = "sqlite:///db" }, t { class = Topic, database = db }
          q { class = Queue }, s { class = Storage, path = s }
        }
        services { simulation { }, persistence-service-1 { }, persistence-service-2 { } }
    """)
    assert start_order(load(file)) == ["persistence-service-1", "persistence-service-2", "simulation"]


def test_who_closes_a_run_outlives_who_writes_it(tmp_path: Path) -> None:
    file = tmp_path / "node.conf"
    file.write_text("""
        resources {
          db { class = Database, url = "sqlite:///db" }, t { class = Topic, database = db }
          q { class = Queue }, s { class = Storage, path = s }
        }
        services { simulation { }, persistence-service { }, completion-service { } }
    """)
    assert start_order(load(file)) == ["completion-service", "persistence-service", "simulation"]


def test_metadata_is_written_before_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "node.conf"
    bindings = 'resources {{ topic = "topic-read:{0}-topic?consumerGroup={0}", meta = "db-meta-{1}:db" }}'
    file.write_text(f"""
        resources {{
          db {{ class = Database, url = "sqlite:///db" }}
          batch-topic {{ class = Topic, database = db }}, meta-topic {{ class = Topic, database = db }}
          lake {{ class = Lake, path = l }}, s {{ class = Storage, path = s }}
        }}
        services {{
          dummy-indexer {{ {bindings.format("batch", "read")} }}
          metadata-indexer {{ {bindings.format("meta", "write")} }}
        }}
    """)
    assert start_order(load(file)) == ["metadata-indexer", "dummy-indexer"]


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)), max_size=12))
def test_the_order_of_the_file_wins_unless_a_dependency_says_otherwise(pairs: list[tuple[str, str]]) -> None:
    forward = {(later, earlier) for later, earlier in pairs if later != earlier and later > earlier}
    dependencies = {name: {earlier for later, earlier in forward if later == name} for name in NAMES}
    assert ordered(dependencies) == list(NAMES), "no dependency contradicts the file"
    turned = {name: {later for later, earlier in forward if earlier == name} for name in NAMES}
    order = ordered(turned)
    assert sorted(order) == list(NAMES)
    assert all(order.index(later) < order.index(earlier) for later, earlier in forward)


def test_a_circle_starts_with_the_first_of_the_file() -> None:
    assert ordered({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": set()}) == ["d", "a", "c", "b"]
