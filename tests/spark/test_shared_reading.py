"""Indexers of a node that have the same `share` in their configuration read each batch file once for both tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ticklake.config import load
from ticklake.lake.flush import job, rendezvous
from ticklake.node.node import Node

CONFIGURATION = """
resources {{
  index-database {{ class = Database, url = "{url}" }}
  batch-topic {{ class = Topic, database = index-database }}
  tick-storage {{ class = Storage, path = "{storage}" }}
  lake {{ class = Lake, path = "{lake}" }}
}}
services {{
  run_id = "{run_id}"
  environment-indexer {{
    resources {{
      topic = "topic-read:batch-topic?consumerGroup=environment-indexer"
      storage = "storage-read:tick-storage"
    }}
    options {{ until_caught_up = true, insert_batch_size = 50, share = {first} }}
  }}
  organism-indexer {{
    resources {{
      topic = "topic-read:batch-topic?consumerGroup=organism-indexer"
      storage = "storage-read:tick-storage"
    }}
    options {{ until_caught_up = true, insert_batch_size = 50, share = {second} }}
  }}
}}
"""


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tables of each Spark job that ran, in order."""
    ran: list[str] = []
    real = job.run_tasks

    def run_tasks(spark: Any, name: str, *rest: Any) -> Any:
        ran.append(name)
        return real(spark, name, *rest)

    monkeypatch.setattr(job, "run_tasks", run_tasks)
    monkeypatch.setattr(rendezvous, "run_tasks", run_tasks)
    return ran


@pytest.mark.parametrize(("first", "second", "shared"), [("cells", "cells", True), ("cells", "bodies", False)])
def test_the_same_name_makes_one_job_for_both_tables_and_another_name_does_not(
    maker: Any,
    index_metadata: Callable[[], None],
    jobs: list[str],
    spark: Any,
    tmp_path: Path,
    first: str,
    second: str,
    shared: bool,
) -> None:
    maker.metadata()
    maker.publish(*maker.batches(3))
    index_metadata()
    file = tmp_path / "node.conf"
    places = {
        "url": maker.database_url,
        "storage": maker.storage.url,
        "lake": maker.lake_folder,
        "run_id": maker.run_id,
    }
    file.write_text(CONFIGURATION.format(first=first, second=second, **places))
    node = Node(load(file))
    for service in node.services.values():
        service.start()
    for service in node.services.values():
        assert service.join(120) and service.error is None
    assert any(" and " in name for name in jobs) == shared, jobs
    assert maker.keys() == sorted(maker.expected_keys(range(300)))
    assert maker.keys("organism_data", "organism_id") == [(tick, 1) for tick in range(300)]
    for database in node.databases:
        assert [(group.lag, group.claimed) for group in database.run(maker.run_id).groups.list()] == [(0, 0)] * 2
        database.close()
