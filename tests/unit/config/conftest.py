from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ticklake.config import NodeSettings, load

RESOURCES = """
resources {
  index-database { class = Database, url = "sqlite:///db" }
  batch-topic    { class = Topic, database = index-database }
  metadata-topic { class = Topic, database = index-database }
  tick-storage   { class = Storage, path = storage }
  tick-queue     { class = Queue }
  lake           { class = Lake, path = lake }
}
"""

Load = Callable[..., NodeSettings]


@pytest.fixture
def load_text(tmp_path: Path) -> Load:
    """Loads a text as `node.conf`, after some resources to refer to."""

    def write_and_load(text: str, *, before: str = RESOURCES) -> NodeSettings:
        file = tmp_path / "node.conf"
        file.write_text(before + text, encoding="utf-8")
        return load(file)

    return write_and_load
