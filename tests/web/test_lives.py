"""The states of runs on the pages, and which nodes remember the runs that they have begun."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from ticklake.node.node import Node
from ticklake.services.closing import record_close
from ticklake.web.site import Site

Serve = Callable[..., httpx.Client]


def test_the_pages_show_the_state_of_a_run(maker: Any, serve_site: Serve) -> None:
    maker.metadata()
    for start in (0, 20):
        maker.batch(start, start + 9)
    client = serve_site(Site(maker.storage))
    assert f">{maker.run_id} · running</option>" in client.get("/completeness").text
    record_close(maker.storage, maker.run_id, cause="command")
    text = serve_site(Site(maker.storage)).get("/completeness").text
    assert f">{maker.run_id} · abandoned</option>" in text
    assert "<dt>run</dt><dd>abandoned at tick 29</dd>" in text
    assert re.search(r"<dt>never written before the run was abandoned</dt><dd>10–19</dd>", text)


@pytest.mark.parametrize(("instances", "remembered"), [("refuse", True), ("compete", False)])
def test_a_node_remembers_its_run_unless_others_may_share_its_name(
    make_node: Callable[..., Node], tmp_path: Path, instances: str, remembered: bool
) -> None:
    node = make_node(node=f"instances = {instances}")
    node.start()
    files = list(tmp_path.rglob("*.runs"))
    assert bool(files) is remembered
    assert all(node.run_id in file.read_text() for file in files)
