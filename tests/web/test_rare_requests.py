"""Requests that no page of ours sends, and values that are seldom there."""

from __future__ import annotations

import http.client
from pathlib import Path

import httpx
import pytest

from ticklake.topics.admin import DeadLetter
from ticklake.topics.admin.browse import StoredMessage
from ticklake.web.feeds.live import _speed
from ticklake.web.pages.dead_letters import payload
from ticklake.web.pages.overview import SPARK_HEIGHT, SPARK_WIDTH, sparkline
from ticklake.web.pages.topics import shown
from ticklake.web.rendering import UNKNOWN, size
from ticklake.web.security import guard, sessions
from ticklake.web.security.guard import Guard

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
