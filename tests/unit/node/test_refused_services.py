"""Services that a node refuses to build, the list of begun runs in a copied directory, and directories that fail."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from ticklake.config import load
from ticklake.errors import ProducerMissing, RunAndRuns
from ticklake.indexers.base import Indexer
from ticklake.indexers.batch import BatchIndexer
from ticklake.indexers.builtin import OF_CELLS
from ticklake.node.begun import Begun
from ticklake.node.directories import _obstacle
from ticklake.node.node import Node
from ticklake.services import BegunRun

RUN, NEXT = "20251014-143025-550e8400", "20251015-090000-aaaaaaaa"
RESOURCES = """
resources {
  d { class = Database, url = "sqlite:///db" }, t { class = Topic, database = d }
  s { class = Storage, path = storage }, q { class = Queue }, l { class = Lake, path = lake }
}
"""


@pytest.mark.parametrize(
    ("service", "refusal"),
    [
        (
            "environment-indexer "
            f'{{ resources {{ t = "topic-read:t?consumerGroup=g" }}, options {{ run_id = "{RUN}", runs = all }} }}',
            RunAndRuns,
        ),
        ('metadata-persistence-service { resources { out = "topic-write:t" } }', ProducerMissing),
    ],
)
def test_a_service_that_lacks_something_is_refused(tmp_path: Path, service: str, refusal: type[Exception]) -> None:
    file = tmp_path / "node.conf"
    file.write_text(f"{RESOURCES}\nservices {{ {service} }}")
    with pytest.raises(refusal):
        Node(load(file))


def test_an_indexer_knows_the_run_that_its_node_makes(tmp_path: Path) -> None:
    file = tmp_path / "node.conf"
    bindings = '{ resources { t = "topic-read:t?consumerGroup=g" }, options { runs = all } }'
    file.write_text(f"{RESOURCES}\nservices {{ environment-indexer {bindings} }}")
    with closing(Node(load(file))) as node:
        (indexer,) = node.services.values()
        assert isinstance(indexer, Indexer) and indexer.resources.own_run == node.run_id


@pytest.mark.parametrize(
    ("cells", "table"), [("snapshots", "environment_data"), ("changes", "environment_changes"), ("none", None)]
)
def test_an_indexer_fills_the_table_of_the_cells_that_its_option_names(
    tmp_path: Path, cells: str, table: str | None
) -> None:
    file = tmp_path / "node.conf"
    bindings = f'{{ resources {{ t = "topic-read:t?consumerGroup=g" }}, options {{ runs = all, cells = {cells} }} }}'
    file.write_text(f"{RESOURCES}\nservices {{ environment-indexer {bindings} }}")
    with closing(Node(load(file))) as node:
        (indexer,) = node.services.values()
        assert isinstance(indexer, BatchIndexer)
        assert (indexer.table and indexer.table.name, type(indexer)) == (table, OF_CELLS[cells])


def test_the_begun_runs_in_a_copy_of_the_directory_are_those_of_another_node(tmp_path: Path) -> None:
    for locked in (False, True):
        own, copy = tmp_path / f"own-{locked}", tmp_path / f"copy-{locked}"
        own.mkdir()
        if locked:
            (own / "node.lock").touch()
        Begun(own, "node", RUN).begin("storage")
        assert Begun(own, "node", NEXT).earlier() == [BegunRun(RUN, "storage")]
        shutil.copytree(own, copy)
        assert Begun(copy, "node", NEXT).earlier() == []


def test_a_directory_in_which_no_file_can_be_created_is_refused() -> None:
    assert "/proc" in (_obstacle(Path("/proc/ticklake"), writing=True, reading=True) or "")
