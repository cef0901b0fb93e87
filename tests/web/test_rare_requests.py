"""Requests that no page of ours sends, and values that are seldom there."""

from __future__ import annotations

import http.client
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from ticklake.indexers.base import IndexerResources
from ticklake.indexers.builtin.metadata import MetadataIndexer
from ticklake.node.node import Node
from ticklake.topics.admin import DeadLetter
from ticklake.topics.admin.browse import StoredMessage
from ticklake.web.feeds.live import _speed
from ticklake.web.pages.dead_letters import payload
from ticklake.web.pages.overview import SPARK_HEIGHT, SPARK_WIDTH, sparkline
from ticklake.web.pages.topics import shown
from ticklake.web.rendering import UNKNOWN, size
from ticklake.web.security import guard, sessions
from ticklake.web.security.guard import Guard
from ticklake.web.site import Site

TOKEN = "x" * 32


def test_a_script_of_another_site_is_refused_and_a_link_on_it_is_not() -> None:
    foreign = {"host": "localhost", "sec-fetch-site": "cross-site"}
    refusal = Guard(TOKEN, "127.0.0.1").refusal("GET", "/tables", foreign | {"sec-fetch-mode": "cors"})
    assert refusal is not None and refusal[0] == 403
    assert Guard(TOKEN, "127.0.0.1").refusal("GET", "/tables", foreign | {"sec-fetch-mode": "navigate"}) is None


@pytest.mark.parametrize("cookies", ["\x00=1; a=b", "a[]=b", f"{sessions.COOKIE}=", f"{sessions.COOKIE}=9.x"])
def test_a_cookie_that_is_no_session_is_none(cookies: str) -> None:
    assert not sessions.is_valid(TOKEN, cookies, 0.0)


def test_of_two_nodes_that_make_a_token_at_once_both_have_that_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / guard.TOKEN_FILE

    def other(size: int) -> str:
        file.write_text("the first", encoding="ascii")
        return "the second"

    monkeypatch.setattr(guard.secrets, "token_urlsafe", other)
    assert guard.find_token("127.0.0.1", tmp_path, {}) == "the first"
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


def test_a_websocket_is_refused(pages: httpx.Client) -> None:
    connection = http.client.HTTPConnection(pages.base_url.host, pages.base_url.port or 80, timeout=60)
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    connection.request("GET", "/", headers=upgrade | {"Sec-WebSocket-Key": "MDEyMzQ1Njc4OTAxMjM0NQ=="})
    assert connection.getresponse().status != 101
    connection.close()


def test_a_service_that_was_stopped_on_a_page_is_started_there(client: httpx.Client, node: Node) -> None:
    for action, state in (("stop", "stopped"), ("start", "running")):
        answer = client.post("/system/services", data={"service": "persistence-service", "action": action})
        assert answer.status_code == 200 and node.services["persistence-service"].state == state


def test_without_a_database_no_group_can_be_changed(
    run_site: Site, serve_site: Callable[..., httpx.Client], indexed: Any
) -> None:
    client = serve_site(replace(run_site, databases=[]))
    form = {"topic": "batch-topic", "group": "g", "to": "earliest"}
    assert client.post(f"/runs/{indexed.RUN_ID}/groups/reset", data=form).status_code == 404


def test_a_part_of_a_page_is_told_what_is_wrong(pages: httpx.Client) -> None:
    answer = pages.get("/tables?run=../etc", headers={"hx-request": "true"})
    assert answer.status_code == 200 and "<html" not in answer.text and "../etc" in answer.text


def test_a_world_with_three_dimensions_is_not_drawn(maker: Any, serve_site: Callable[..., httpx.Client]) -> None:
    maker.metadata(shape=(4, 4, 4))
    MetadataIndexer("metadata-indexer", IndexerResources(maker.storage, maker.lake)).write(maker.run_id)
    rows = {name: pa.array([1], pa.int64()) for name in ("tick_number", "cell_id")}
    write_deltalake(maker.folder("environment_data"), pa.table(rows))
    client = serve_site(Site(maker.storage, maker.lake_folder, []))
    assert "Only two-dimensional worlds are drawn." in client.get("/world").text


def test_bytes_that_are_no_message_are_shown_as_such() -> None:
    letter = DeadLetter("t", "g", "m", 1, "error", "", 0, b"\xff\x00")
    assert payload(letter) == "ff 00"
    message = StoredMessage(1, "m", 0, b"\xff\x00", "waiting", 0)
    assert shown(message)[2:] == ("?", "cannot be decoded")


def test_a_line_goes_from_edge_to_edge_and_the_largest_value_is_on_top() -> None:
    assert sparkline([]) == sparkline([1.0]) == sparkline([0.0, 0.0]) == ""
    assert sparkline([0.0, 2.0, 1.0]).split() == [
        f"0.0,{SPARK_HEIGHT - 2:.1f}",
        f"{SPARK_WIDTH / 2:.1f},4.0",
        f"{SPARK_WIDTH:.1f},{(SPARK_HEIGHT - 2 + 4) / 2:.1f}",
    ]


def test_what_is_not_known_has_no_speed_and_no_size() -> None:
    assert _speed(None, None, 1.0) is None
    assert size(None) == UNKNOWN
